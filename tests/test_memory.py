"""``dl.memory``: numbers, limits, pictures; and training that runs out of memory."""

from __future__ import annotations

import gc
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.runtime.protocols import Buffer
from tests.conftest import need
from tests.support.subcases import FULL

GPUS = [pytest.param(name, marks=pytest.mark.vulkan) for name in ("vulkan:0", "kompute:0")]


@pytest.fixture(autouse=True)
def poisoned() -> None:
    """Instead of the one that fills memory: what is allocated is counted here."""


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


def test_stats_by_tag(device: str) -> None:
    gc.collect()
    before = dl.memory.stats(device)
    x = dl.tensor(np.ones((50, 20), np.float32), device=device)
    y = x.relu()
    after = dl.memory.stats(device)
    assert after.allocated - before.allocated == 8000
    assert after.by_tag["relu"] - before.by_tag.get("relu", 0) == 4000
    assert sum(after.by_tag.values()) == after.allocated <= after.reserved
    dl.memory.reset_peak(device)
    del x, y
    assert dl.memory.stats(device).peak == after.allocated
    dl.memory.reset_peak(device)
    assert dl.memory.stats(device).peak == before.allocated


def test_views_keep_a_storage_and_the_last_one_gives_it_back(device: str) -> None:
    gc.collect()
    gc.disable()  # no cycle holds anything
    try:
        before = dl.memory.stats(device).allocated
        x = dl.ones(100, 30, device=device)
        view = x[3].reshape(5, 6).T
        del x
        assert dl.memory.stats(device).allocated == before + 12000
        np.testing.assert_array_equal(view.numpy(), np.ones((6, 5)))
        del view
        assert dl.memory.stats(device).allocated == before
    finally:
        gc.enable()


def test_nothing_of_a_training_step_needs_the_cycle_collector(device: str) -> None:
    model, x, target = network(device), *batch(device, 8)
    step(model, x, target)
    for parameter in model.parameters():
        parameter.grad = None
    gc.collect()
    gc.disable()
    try:
        before = dl.memory.stats(device).allocated
        step(model, x, target)
        for parameter in model.parameters():
            parameter.grad = None
        assert dl.memory.stats(device).allocated == before
    finally:
        gc.enable()


def test_summary_names_parameters_and_lines(gpu: str) -> None:
    dl.memory.track(True, gpu)
    try:
        model = nn.Sequential(nn.Linear(300, 400)).to(gpu)
        x = dl.ones(2000, 300, device=gpu)
    finally:
        dl.memory.track(False, gpu)
    text = dl.memory.summary(gpu)
    assert f"{gpu}: " in text
    assert "(2000, 300) float32" in text
    assert "0.weight (400, 300) float32" in text
    assert f"{__file__}:" in text
    assert model(x).shape == (2000, 400)


def test_a_summary_runs_nothing_of_the_objects_it_looks_through() -> None:
    """They may be proxies that warn when they are asked anything, or modules before their ``__init__``."""

    class Strange:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise FutureWarning("do not touch")

    class Half(nn.Module):
        def __init__(self) -> None:
            self.early = dl.ones(3 << 20, device="cpu")
            self.text = dl.memory.summary("cpu")
            super().__init__()
            self.itself = self

    strange = [Strange()]
    half = Half()
    for text in (half.text, dl.memory.summary("cpu")):
        assert " early (3145728,) float32" in text.replace("itself.", "", 1)
    assert len(strange) == 1


# Limits


def test_amounts() -> None:
    assert dl.memory.parsed("64MB") == 64_000_000
    assert dl.memory.parsed("64 mib") == 64 << 20
    assert dl.memory.parsed("0.5GiB") == 1 << 29
    assert dl.memory.parsed("100 B") == dl.memory.parsed("100") == dl.memory.parsed(100) == 100
    for wrong in ("", "MB", "-1", "12 parsecs", True):
        with pytest.raises(ArgumentError, match="512MB"):
            dl.memory.parsed(wrong)


def network(place: Any) -> nn.Module:
    """The same one each time."""
    dl.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(place)


def batch(place: Any, size: int) -> tuple[Any, Any]:
    random = np.random.default_rng(size)
    x = random.normal(size=(size, 64)).astype(np.float32)
    return dl.tensor(x, device=place), dl.tensor(x[:, :10] * 2, device=place)


def step(model: nn.Module, x: Any, target: Any, rate: float = 0.01) -> float:
    """One step of gradient descent; the loss before it."""
    for parameter in model.parameters():
        parameter.grad = None
    difference = model(x) - target
    loss = (difference * difference).sum() * (1 / x.shape[0])
    loss.backward()
    with dl.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad * rate)
    return float(loss.item())


def weights(model: nn.Module) -> list[npt.NDArray[Any]]:
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def test_what_is_available_follows_the_limit_and_what_tensors_take(gpu: str) -> None:
    place = dl.Device.of_backend(gpu, dl.device(gpu)._backend)
    assert dl.memory.available(place) > 100_000_000
    dl.memory.limit(place, "64MB")
    assert dl.memory.available(place) == 64_000_000
    taken = [dl.zeros(1_000_000, device=place) for _ in range(3)]
    assert dl.memory.available(place) == 64_000_000 - dl.memory.stats(place).allocated
    del taken
    gc.collect()
    assert dl.memory.available(place) == 64_000_000


def test_too_large_a_batch_is_explained_and_a_smaller_one_trains(gpu: str) -> None:
    place = dl.Device.of_backend(gpu, dl.device(gpu)._backend)
    expected = network("cpu")
    losses = [step(expected, *batch("cpu", 64)) for _ in range(3)]
    model = network(place)
    dl.memory.limit(place, "64MB")
    assert dl.memory.stats(place).limit == 64_000_000
    with pytest.raises(OutOfMemoryError) as failure:
        step(model, *batch(place, 60_000))
    text = str(failure.value)
    assert "do not fit on" in text
    assert "the limit is 61.0 MiB" in text
    assert "The largest of" in text
    assert "float32" in text
    del failure
    np.testing.assert_allclose([step(model, *batch(place, 64)) for _ in range(3)], losses, rtol=1e-4)
    for ours, theirs in zip(weights(model), weights(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert dl.memory.stats(place).peak_reserved <= 64_000_000
    del model
    gc.collect()
    assert dl.memory.stats(place).allocated == 0


class Failing:
    """Lets a backend's allocations fail from one on, until told otherwise."""

    def __init__(self, allocate: Callable[..., Buffer]) -> None:
        self.allocate, self.count, self.fails_from = allocate, 0, 2**62

    def __call__(self, nbytes: int, kind: Any = "device") -> Buffer:
        self.count += 1
        if self.count >= self.fails_from:
            raise OutOfMemoryError("[test] told to")
        return self.allocate(nbytes, kind)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "strategy", "every"),
    [
        pytest.param("vulkan:0", "pool", 1 if FULL else 9, marks=pytest.mark.vulkan),
        pytest.param("vulkan:0", "best_fit", 1 if FULL else 9, marks=pytest.mark.vulkan),
        # Kompute builds a pipeline for each set of buffers.
        pytest.param("kompute:0", "pool", 4 if FULL else 8, marks=pytest.mark.vulkan),
    ],
)
@pytest.mark.slow
def test_every_allocation_of_a_training_step_may_fail(
    name: str, strategy: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other: nothing leaks, and the next step is right."""
    need(name)
    monkeypatch.setenv("DL4ALL_ALLOCATOR", strategy)
    backend = dl.device(name)._backend
    failing = Failing(backend.allocate)
    monkeypatch.setattr(backend, "allocate", failing)
    model = network("cpu")
    x, target = batch("cpu", 8192)  # more than what is reserved for the parameters
    step(model, x, target)
    expected = weights(model)

    place = dl.Device.of_backend(name, backend)
    model, x_there, target_there = network(place), x.to(place), target.to(place)
    in_use = dl.memory.stats(place).allocated

    def right_step() -> int:
        """From the first parameters to the expected ones; how often the driver was asked."""
        fill(model)
        dl.memory.trim(place)
        before = failing.count
        step(model, x_there, target_there)
        for ours, theirs in zip(weights(model), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        return failing.count - before

    right_step()
    calls = right_step()
    assert calls >= (10 if strategy == "pool" else 3)
    refused = []
    for number in range(0, calls, every):
        for parameter in model.parameters():
            parameter.grad = None
        dl.memory.trim(place)
        failing.fails_from = failing.count + number + 1
        try:
            step(model, x_there, target_there)
        except OutOfMemoryError as error:
            refused.append(str(error))
        failing.fails_from = 2**62
        for parameter in model.parameters():
            parameter.grad = None
        gc.collect()
        assert dl.memory.stats(place).allocated == in_use, f"allocation {number} of {calls}"
        right_step()
    assert all("told to" in text for text in refused)
    if strategy == "pool":
        assert len(refused) == len(range(0, calls, every))
    else:
        assert refused  # not always: blocks are only replaced by a larger one where that succeeds


def fill(model: nn.Module) -> None:
    """What the parameters were at first: a step that failed late has changed some."""
    with dl.no_grad():
        for parameter, first in zip(model.parameters(), network("cpu").parameters(), strict=True):
            parameter.copy_(first.to(parameter.device))


# Measuring


def test_measure_compares_with_the_lower_bound(device: str) -> None:
    # A device without blocks that other tests' tensors lie in, and nothing that is collected meanwhile.
    place = dl.device("cpu") if device == "cpu" else dl.Device.of_backend(device, dl.device(device)._backend)
    gc.collect()
    x = dl.ones(1000, 1000, device=place)
    held = dl.memory.stats(place).allocated
    with dl.memory.measure(place) as measured:
        y = (x + 1).relu()
        del y
        z = x + 2
    assert measured.lower_bound == held + 8_000_000
    assert measured.by_tag["relu"] >= 4_000_000
    assert 1 <= measured.ratio < 2
    assert z.shape == x.shape


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_a_trace_is_a_picture(device: str, suffix: str, tmp_path: Path) -> None:
    with dl.memory.trace(device) as timeline:
        x = dl.ones(500, 500, device=device)
        for _ in range(20):
            x = (x * 2).relu()
    assert timeline.peak >= 2_000_000
    assert len(timeline.moments) >= 60
    path = tmp_path / f"memory{suffix}"
    timeline.save(path)
    if suffix == ".html":
        text = path.read_text("utf-8")
        assert "<svg" in text
        assert "relu" in text
    else:
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        length = struct.unpack(">I", data[33:37])[0]
        rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(height, 1 + 3 * width)
        assert len(np.unique(rows[:, 1:].reshape(-1, 3), axis=0)) >= 3  # paper, line and a tag
    with pytest.raises(ArgumentError, match=r"\.html or \.png"):
        timeline.save(tmp_path / "memory.jpg")
