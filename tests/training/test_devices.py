"""A trainer on several devices does as one on a single device, whichever devices fail."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import DeviceError
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from tests.conftest import need
from tests.support.parallel_training import TIMEOUT, allocated, convolutions, left, sgd
from tests.support.parallel_training import ended_threads as ended_threads
from tests.support.subcases import each, some

pytestmark = pytest.mark.usefixtures("deadline", "split_by_speed")

TOLERANCE = 2e-6  # of losses and parameters, relative
EPOCHS = 3
FATAL = ("lost", "hang")
PHASES = ("upload", "forward", "backward", "update", "download")


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory, which would be a command more of simulated devices."""


def dataset(count: int = 42) -> dl.data.TensorDataset:
    rng = np.random.default_rng(0)
    return dl.data.TensorDataset(rng.standard_normal((count, 3, 6, 6)).astype("f"), rng.integers(0, 5, count))


class Run(NamedTuple):
    rows: npt.NDArray[np.float64]
    state: dict[str, npt.NDArray[Any]]
    step: int
    outputs: npt.NDArray[Any]
    means: dict[str, float]


def run(
    devices: Sequence[str | Device] | DeviceGroup | str,
    *,
    epochs: int = EPOCHS,
    resume: bool = False,
    **options: Any,
) -> Run:
    """Train, evaluate and predict; a single device without a group."""
    model = convolutions()
    optimizer = sgd(model.parameters())
    dl.manual_seed(11)
    loader = dl.data.DataLoader(dataset(), 13, shuffle=True, device=None)
    where = (
        {"device": devices[0]} if isinstance(devices, list) and len(devices) == 1 else {"devices": devices}
    )
    trainer = dl.Trainer(
        model,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        metrics=["accuracy"],
        progress=False,
        scheduler=dl.optim.lr_scheduler.StepLR(optimizer, 1, 0.9),
        ema=dl.optim.EMA(model.parameters(), 0.9),
        **where,
        **options,
    )
    test = dl.data.DataLoader(dataset(20), 8, device=None)
    history = trainer.fit(loader, epochs, validation=test, resume=resume)
    rows = np.array([[row[name] for name in ("loss", "accuracy", "val_loss")] for row in history.rows])
    means, outputs = trainer.evaluate(test), trainer.predict(test)
    state = {name: np.array(tensor.numpy()) for name, tensor in model.state_dict().items()}
    if trainer.group is not None and not isinstance(devices, DeviceGroup):
        trainer.group.close()
    return Run(rows, state, trainer.step, outputs, means)


def check(expected: Run, actual: Run) -> None:
    assert actual.step == expected.step
    assert np.ptp(expected.rows[:, 0]) > 0
    np.testing.assert_allclose(actual.rows, expected.rows, rtol=TOLERANCE, atol=TOLERANCE)
    for name, value in expected.state.items():
        difference = np.linalg.norm(value.astype(np.float64) - actual.state[name])
        assert difference <= TOLERANCE * np.linalg.norm(value), name
    scale = np.abs(expected.outputs).max()
    np.testing.assert_allclose(actual.outputs, expected.outputs, atol=10 * TOLERANCE * scale)
    assert actual.means == pytest.approx(expected.means, rel=10 * TOLERANCE)


@functools.cache
def alone(accumulate: int = 1) -> Run:
    return run(["cpu"], accumulate=accumulate)


@pytest.mark.parametrize(
    "names",
    [
        ["cpu", "cpu#1"],
        pytest.param(["cpu", "vulkan:0"], marks=pytest.mark.vulkan),
        pytest.param(["vulkan:0", "cpu"], marks=pytest.mark.vulkan),
    ],
    ids=" and ".join,
)
def test_lists_of_devices(names: list[str]) -> None:
    for name in names:
        need(name)
    check(alone(), run(names))


def test_a_group_and_all_devices() -> None:
    with DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT) as group:
        check(alone(), run(group))
        assert not group.retired
    with DeviceGroup("all", timeout=TIMEOUT) as group:
        names = [str(device) for device in group]
    check(run(names[:1]), run("all"))


@pytest.mark.parametrize(
    "options", [{"accumulate": 3}, {"clip_norm": 0.05}, {"accumulate": 2, "clip_norm": 0.5}], ids=str
)
def test_options_of_a_trainer(options: dict[str, Any]) -> None:
    check(run(["cpu"], **options), run(["cpu", "cpu#1"], **options))


def test_shards_with_statistics_of_their_own_train_otherwise() -> None:
    result = run(["cpu", "cpu#1"], sync_batch_norm=False)
    assert result.step == alone().step
    assert np.isfinite(result.rows).all()
    assert np.abs(result.rows - alone().rows).max() > 1e-4


def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """Whether it was begun by one device or by several."""
    for number, (first, second) in enumerate(itertools.product((["cpu"], ["cpu", "cpu#1"]), repeat=2)):
        folder = tmp_path / str(number)
        run(first, epochs=1, folder=folder, checkpoint_every=2)
        check(alone(), run(second, folder=folder, checkpoint_every=2, resume=True))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [*FATAL, "memory"])
@each("phase, after", some([*itertools.product(PHASES, (12, 30)), ("", 60), ("", 200)], 3))
def test_a_failure_of_the_primary_device(kind: Any, phase: str, after: int) -> None:
    failure = Failure(kind, phase, after)
    devices = [
        simulated_device(gflops=400, failures=(failure,)),
        simulated_device(gflops=200),
        simulated_device(gflops=100),
    ]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    try:
        check(alone(), run(group))
        happened = failure not in left(devices[0])
        assert happened or after == 30
        assert list(group.retired) == (devices[:1] if happened and kind in FATAL else [])
        gc.collect()
        assert allocated(group) == [0] * len(group.alive)
    finally:
        group.close()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_failure_while_gradients_are_accumulated(accumulate: int) -> None:
    for after in some((3, 10, 20), 2):
        devices = [simulated_device(failures=(Failure("lost", "backward", after),)), simulated_device()]
        with DeviceGroup(devices, timeout=TIMEOUT) as group:
            check(alone(accumulate), run(group, accumulate=accumulate))
            assert list(group.retired) == devices[:1]


def test_one_device_after_the_other_fails() -> None:
    devices = [
        simulated_device(failures=(Failure("lost", "forward", 40),)),
        simulated_device(failures=(Failure("hang", "backward", 60),)),
        simulated_device(failures=(Failure("memory", "forward", 10), Failure("slow", "backward", 10))),
    ]
    with DeviceGroup(devices, timeout=TIMEOUT) as group:
        check(alone(), run(group))
        assert set(group.retired) == set(devices[:2])


def test_the_failure_of_all_devices_is_an_error() -> None:
    devices = [simulated_device(failures=(Failure("lost", "", n),)) for n in (80, 160, 300)]
    with DeviceGroup(devices, timeout=TIMEOUT) as group:
        with pytest.raises(DeviceError, match="no device is left"):
            run(group)
        assert not group.alive
