"""Several devices train as one does: the same losses, parameters, statistics and random numbers."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.multi_device.data_parallel.balance import Balance
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.group import DeviceGroup
from tests.conftest import need
from tests.support.parallel_training import (
    CLASSES,
    TIMEOUT,
    Outcome,
    convolutions,
    distance,
    images,
    simulation,
    tiny,
    train,
    vectors,
)
from tests.support.parallel_training import evenly as evenly

pytestmark = pytest.mark.usefixtures("deadline", "split_by_speed")

TOLERANCE = 1e-6  # the order of float32 sums
GROUPS = [
    pytest.param(["cpu", "cpu#1"], id="cpu twice"),
    pytest.param(["vulkan:0", "cpu"], marks=pytest.mark.vulkan, id="vulkan and cpu"),
    pytest.param(["cpu", "vulkan:0"], marks=pytest.mark.vulkan, id="cpu and vulkan"),
    pytest.param(["vulkan:0", "vulkan:0#1", "cpu"], marks=pytest.mark.vulkan, id="vulkan twice and cpu"),
    pytest.param(["kompute:0", "cpu"], marks=pytest.mark.vulkan, id="kompute and cpu"),
]


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory, which would be a command more of simulated devices."""


@functools.cache
def alone() -> Outcome:
    return train(["cpu"])


@pytest.mark.usefixtures("evenly")
@pytest.mark.parametrize("names", GROUPS)
def test_a_group_trains_as_one_device(names: list[str]) -> None:
    for name in names:
        need(name)
    steps = 4 if "kompute:0" in names else 20  # a software driver builds many pipelines there
    expected = alone() if steps == 20 else train(["cpu"], steps=steps)
    assert distance(expected, train(names, steps=steps)) < TOLERANCE


@pytest.mark.parametrize("speeds", [(200, 100), (400, 200, 100)])
def test_simulated_devices_train_as_one_device(speeds: tuple[int, ...]) -> None:
    devices = [simulated_device(gflops=speed) for speed in speeds]
    assert distance(alone(), train(devices)) < TOLERANCE
    assert all(simulation(device).busy for device in devices)


def test_many_devices() -> None:
    """With more rows than devices, and with fewer."""
    devices = [simulated_device(gflops=0.01, launch_us=0.0, link_us=0.0) for _ in range(64)]
    options: Any = {"make": tiny, "inputs": vectors, "steps": 3, "rows": lambda step: 70 if step < 2 else 40}
    assert distance(train(["cpu"], **options), train(devices, **options)) < TOLERANCE
    assert sum(simulation(device).busy > 0 for device in devices) > 16  # a counter covers some rows


class Words(dl.nn.Module):
    """An embedding and a recurrent layer, the batch first."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = dl.nn.Embedding(11, 6)
        self.layers = dl.nn.LSTM(6, 7, num_layers=2, batch_first=True)
        self.dropout = dl.nn.Dropout(0.2)
        self.head = dl.nn.Linear(7, CLASSES)

    def forward(self, words: dl.Tensor) -> dl.Tensor:
        outputs, _ = self.layers(self.embedding(words))
        return self.head(self.dropout(outputs[:, -1]))  # type: ignore[no-any-return]


class Attention(dl.nn.Module):
    """A transformer's encoder layer, whose output is averaged over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = dl.nn.Embedding(11, 8)
        self.layer = dl.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = dl.nn.Linear(8, CLASSES)

    def forward(self, words: dl.Tensor) -> dl.Tensor:
        return self.head(self.layer(self.embedding(words)).mean(1))  # type: ignore[no-any-return]


def sentences(rows: int, step: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(step).integers(0, 11, (rows, 4))


@pytest.mark.usefixtures("evenly")
@pytest.mark.parametrize("kind", [Words, Attention])
def test_sequences(kind: Callable[[], dl.nn.Module]) -> None:
    def make() -> dl.nn.Module:
        dl.manual_seed(8)
        return kind()

    options: Any = {"make": make, "inputs": sentences, "steps": 6}
    expected = train(["cpu"], **options)
    assert distance(expected, train(["cpu", "cpu#1", "cpu#2"], **options)) < TOLERANCE


@pytest.mark.usefixtures("evenly")
def test_float64_differs_by_roundings_alone() -> None:
    expected = train(["cpu"], dtype="float64")
    assert distance(expected, train(["cpu", "cpu#1"], dtype="float64")) < 1e-13
    assert distance(expected, train(["cpu", "cpu#1", "cpu#2"], dtype="float64")) < 1e-13


def adam(parameters: Any) -> dl.optim.Adam:
    return dl.optim.Adam(parameters, lr=0.01, eps=1e-3)  # so that roundings of small gradients stay small


@pytest.mark.usefixtures("evenly")
def test_adam() -> None:
    expected = train(["cpu"], optimizer=adam, steps=8)
    assert distance(expected, train(["cpu", "cpu#1"], optimizer=adam, steps=8)) < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_any_split_gives_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices with no rows, or with one, and other splits at every step."""
    numbers, seen = random.Random(seed), set()

    def shares(self: Balance, rows: int, devices: Sequence[Device]) -> list[int]:
        units = -(-rows // self.grain)
        cuts = sorted(numbers.choices(range(units + 1), k=len(devices) - 1))
        ends = [min(rows, cut * self.grain) for cut in [*cuts, units]]
        result = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        seen.add(tuple(result))
        return result

    monkeypatch.setattr(Balance, "shares", shares)
    assert distance(alone(), train([f"cpu#{n}" for n in range(1, 5)])) < TOLERANCE
    assert len(seen) > 3


@pytest.mark.usefixtures("evenly")
def test_batches_of_all_sizes() -> None:
    """Smaller than the group, of one row, odd."""
    sizes = [1, 2, 3, 7, 1, 5, 16, 9]
    options: Any = {"make": tiny, "inputs": vectors, "steps": len(sizes), "rows": sizes.__getitem__}
    assert distance(train(["cpu"], **options), train(["cpu", "cpu#1", "cpu#2"], **options)) < TOLERANCE


def same_bits(expected: Outcome, actual: Outcome) -> None:
    np.testing.assert_array_equal(expected.losses, actual.losses)
    for name, value in expected.state.items():
        np.testing.assert_array_equal(value, actual.state[name], err_msg=name)


def test_a_group_of_one_gives_the_same_bits() -> None:
    same_bits(alone(), train(DeviceGroup(["cpu"])))


@pytest.mark.parametrize("worker", [0, 1])
def test_one_device_with_all_rows_gives_the_same_bits(worker: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def shares(self: Balance, rows: int, devices: Sequence[Device]) -> list[int]:
        return [rows if number == worker else 0 for number in range(len(devices))]

    monkeypatch.setattr(Balance, "shares", shares)
    same_bits(alone(), train(["cpu", "cpu#1"]))


@pytest.mark.parametrize("rows", [8, 13, 2])
def test_dropout_drops_what_one_device_drops(rows: int) -> None:
    """Also where a row has an odd number of elements, so that shards must begin at multiples of 4."""
    for width in (1, 3, 4, 10):
        x = dl.from_numpy(np.random.default_rng(width).uniform(1, 2, (rows, width)).astype("f"), "cpu")
        layer = dl.nn.Dropout(0.5)
        dl.manual_seed(7)
        expected = [layer(x).numpy().copy() for _ in range(3)]
        group = DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT)
        network = dl.parallel(dl.nn.Dropout(0.5), group)
        dl.manual_seed(7)
        for wanted in expected:
            np.testing.assert_array_equal(network(x).numpy(), wanted)
        group.close()
    assert any((wanted == 0).any() and (wanted != 0).any() for wanted in expected)


def test_gradients_over_two_batches_add_up() -> None:
    def gradients(network: dl.nn.Module, model: dl.nn.Module, *, together: bool) -> list[npt.NDArray[Any]]:
        dl.manual_seed(9)
        losses = [network(dl.from_numpy(images(n, n), "cpu")).square().mean() for n in (13, 6)]
        if together:
            (losses[0] + losses[1]).backward()
        else:
            for loss in losses:
                loss.backward()
        return [np.array(p.grad.numpy()) for p in model.parameters()]

    for together in (False, True):
        single = convolutions()
        expected = gradients(single, single, together=together)
        model = convolutions()
        with DeviceGroup(["cpu", "cpu#1", "cpu#2"], timeout=TIMEOUT) as group:
            actual = gradients(dl.parallel(model, group), model, together=together)
        for wanted, got in zip(expected, actual, strict=True):
            assert np.linalg.norm(wanted - got) < 1e-5 * np.linalg.norm(expected[-2])


def test_a_device_that_becomes_slower_gets_fewer_rows() -> None:
    devices = [simulated_device(gflops=0.5, launch_us=0.0) for _ in range(2)]
    given: list[list[int]] = []

    def watch(step: int, network: Any) -> None:
        given.append([network.balance.estimates[device].given for device in devices])
        if step == 4:
            simulation(devices[1])._slowness = 10.0

    options: Any = {"rows": 32, "steps": 24}
    assert distance(train(["cpu"], **options), train(devices, after_step=watch, **options)) < TOLERANCE
    assert given[4] == [16, 16]
    assert given[-1][1] <= 6
    assert sum(given[-1]) == 32
