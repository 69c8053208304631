"""Small trainings that several devices do together, beside one that does them alone."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.multi_device.data_parallel.balance import Balance, split
from dl4all.multi_device.data_parallel.module import DataParallel
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.random.generator import default_generator
from dl4all.runtime.simulated.backend import SimulatedBackend
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup


@pytest.fixture
def split_by_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every device rows, though the networks of tests are too small to be worth it."""
    monkeypatch.setattr(DataParallel, "_trace", lambda self, call: None)


TIMEOUT = 20.0  # seconds after which a group gives a device up
CLASSES = 5
BATCH = 13


class Outcome(NamedTuple):
    """What is left of a training."""

    losses: npt.NDArray[np.float64]
    state: dict[str, npt.NDArray[Any]]
    random: tuple[int, int]


def convolutions() -> dl.nn.Sequential:
    """Convolution, batch normalization and dropout, for images of (3, 6, 6)."""
    dl.manual_seed(3)
    return dl.nn.Sequential(
        dl.nn.Conv2d(3, 8, 3, padding=1),
        dl.nn.BatchNorm2d(8),
        dl.nn.ReLU(),
        dl.nn.Dropout(0.3),
        dl.nn.Flatten(),
        dl.nn.Linear(8 * 36, CLASSES),
    )


def tiny() -> dl.nn.Sequential:
    """Two layers with dropout between them, for rows of 4 numbers."""
    dl.manual_seed(4)
    return dl.nn.Sequential(dl.nn.Linear(4, 8), dl.nn.Tanh(), dl.nn.Dropout(0.25), dl.nn.Linear(8, CLASSES))


@pytest.fixture(autouse=True)
def ended_threads() -> Iterator[None]:
    """No stream of a group outlives it."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        if "of a group" in thread.name:
            thread.join(TIMEOUT)
            assert not thread.is_alive(), thread.name


def allocated(group: DeviceGroup) -> list[int]:
    """The bytes in use on the devices that still work, once the streams' threads hold none of them.

    A thread wakes those who wait for a task before it lets go of the task itself, and may be kept from
    running in between.
    """
    for thread in threading.enumerate():
        if any(thread.name == f"{device} of a group" for device in group.retired):
            thread.join(TIMEOUT)
    for device in group.alive:
        group.stream(device).submit(int).wait()
    return [device.pool.stats.allocated for device in group.alive]


@pytest.fixture
def evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device has a part in each batch, however small the model is."""

    def shares(self: Balance, rows: int, devices: Sequence[Device]) -> list[int]:
        return split(rows, [0.0] * len(devices), [1.0] * len(devices), self.grain)

    monkeypatch.setattr(Balance, "shares", shares)


class Counting(dl.nn.Module):
    """Changes a buffer in every forward pass."""

    calls: Any

    def __init__(self) -> None:
        super().__init__()
        self.layer = dl.nn.Linear(4, 2)
        self.register_buffer("calls", dl.zeros(1, device="cpu"))

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        with dl.no_grad():
            self.calls.add_(1.0)
        return self.layer(x)  # type: ignore[no-any-return]


def simulation(device: Device) -> SimulatedBackend:
    """What a simulated device does, and is to do."""
    assert device.simulated is not None
    return device.simulated


def left(device: Device) -> dict[Failure, int]:
    """The failures of a simulated device that have not happened."""
    return simulation(device)._left


def images(rows: int, step: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(step).standard_normal((rows, 3, 6, 6)).astype("f")


def vectors(rows: int, step: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(step).standard_normal((rows, 4)).astype("f")


def sgd(parameters: Any) -> dl.optim.SGD:
    return dl.optim.SGD(parameters, lr=0.05, momentum=0.9)


def train(
    devices: Sequence[str | Device] | DeviceGroup,
    *,
    make: Callable[[], dl.nn.Module] = convolutions,
    inputs: Callable[[int, int], npt.NDArray[Any]] = images,
    optimizer: Callable[[Any], Any] = sgd,
    rows: int | Callable[[int], int] = BATCH,
    steps: int = 20,
    dtype: str = "float32",
    sync_batch_norm: bool = True,
    after_step: Callable[[int, Any], None] = lambda step, network: None,
) -> Outcome:
    """Train a network for classes of samples. A single device does it without a group."""
    model = make().to(dtype=dtype)
    alone = not isinstance(devices, DeviceGroup) and len(devices) == 1
    group = None
    network: dl.nn.Module
    if alone:
        network = model.to(devices[0])  # type: ignore[index]
    else:
        group = devices if isinstance(devices, DeviceGroup) else DeviceGroup(devices, timeout=TIMEOUT)
        network = dl.parallel(model, group, sync_batch_norm=sync_batch_norm)
    made = optimizer(model.parameters())
    dl.manual_seed(5)
    losses = []
    for step in range(steps):
        count = rows if isinstance(rows, int) else rows(step)
        primary = next(model.parameters()).device
        array = inputs(count, step)
        if kind_of(array.dtype) == "f":
            array = array.astype(dtype)
        x = dl.from_numpy(array, primary)
        y = dl.from_numpy(np.random.default_rng(1000 + step).integers(0, CLASSES, count), primary)
        loss = dl.nn.functional.cross_entropy(network(x), y)
        made.zero_grad()
        loss.backward()
        made.step()
        losses.append(loss.item())
        after_step(step, network)
    state = {name: np.array(tensor.numpy()) for name, tensor in model.state_dict().items()}
    random = default_generator().get_state()
    if group is not None:
        group.close()
    return Outcome(np.array(losses), state, random)


def distance(expected: Outcome, actual: Outcome) -> float:
    """The largest difference of losses and of parameters and statistics, each relative to its own size."""
    assert len(expected.losses) == len(actual.losses)
    assert expected.losses.std() > 0  # numbers that never change would be equal whatever happened
    assert expected.random == actual.random
    differences = [np.abs(expected.losses - actual.losses).max() / np.abs(expected.losses).max()]
    differences += [
        np.linalg.norm(value.astype(np.float64) - actual.state[name])
        / max(float(np.linalg.norm(value.astype(np.float64))), 1e-30)
        for name, value in expected.state.items()
    ]
    return float(max(differences))
