"""Attacks on training runs and their data: Ctrl-C by real signals, and data sets that return nonsense."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import DataLoader
from dl4all.errors import Dl4allError
from tests.attacks.training_run import interrupt, process, received
from tests.conftest import need
from tests.support.loader_threads import join
from tests.support.subcases import FULL

INTERRUPTS = {"cpu": 60 if FULL else 3, "vulkan:0": 60}


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan:0", marks=[pytest.mark.vulkan, pytest.mark.full])]
)
def test_interrupted_runs_end_as_the_undisturbed_one(tmp_path: Path, device: str) -> None:
    """Within one process, wherever the signals strike; also where a worker hangs for good, which then holds
    up neither the next loop nor the end of the process."""
    need(device)
    count = INTERRUPTS[device]
    with process(interrupt, tmp_path, device, count) as (attacked, pipe):
        found = dict(received(pipe) for _ in range(count + 4))
        attacked.join(60)
        assert attacked.exitcode == 0
    assert found["interrupted"][0] == "KeyboardInterrupt"
    expected = found["expected"]
    for name in (*map(str, range(count)), "hung"):
        assert found[name] == expected, name
    assert int(found["met"][0]) > count // 4, "few of the signals came before the end of their run"


class Mapping(dict[str, Any]):
    """A dict that has no values."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)


def raising(error: BaseException) -> Any:
    raise error


class Unreadable:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise StopIteration


NONSENSE: dict[str, Callable[[int], Any]] = {
    "stops": lambda i: raising(StopIteration()),
    "leaves": lambda i: raising(GeneratorExit()),
    "fails": lambda i: raising(ValueError("own")),
    "asserts": lambda i: raising(AssertionError()),
    "recurses": lambda i: NONSENSE["recurses"](i),
    "none": lambda i: None,
    "object": lambda i: object(),
    "text and number": lambda i: "x" if i % 2 else 1.0,
    "ragged": lambda i: np.ones(i + 1),
    "ragged tuple": lambda i: (1,) * (i % 2 + 1),
    "ragged list": lambda i: ([1.0] * (i % 3), 1),
    "ragged dict": lambda i: {i: 1.0},
    "deep": lambda i: {"a": [{"b": np.ones(i % 2 + 1)}]},
    "empty dict of keys": lambda i: Mapping(a=1),
    "unreadable": lambda i: Unreadable(),
    "generator": lambda i: (j for j in range(3)),
    "set": lambda i: {1, 2},
    "large": lambda i: 2**70,
    "not implemented": lambda i: NotImplemented,
    "class": lambda i: int,
}
OWN = {
    "fails": ValueError,
    "asserts": AssertionError,
    "recurses": RecursionError,
    "empty dict of keys": KeyError,
}


class Samples:
    def __init__(self, function: Callable[[int], Any], first: int) -> None:
        self.function, self.first = function, first

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return np.float32(index) if index < self.first else self.function(index)


@pytest.mark.parametrize("device", [None, "cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_data_sets_that_return_nonsense(device: str | None) -> None:
    """Each is an error of ours or the data set's own, at its batch, with all threads of workers and without;
    no epoch ends silently."""
    if device is not None:
        need(device)
    for (name, function), workers in itertools.product(NONSENSE.items(), (0, 3)):
        loader = DataLoader(Samples(function, 8), 4, num_workers=workers, device=device)
        given: list[Any] = []
        with pytest.raises(OWN.get(name, Dl4allError)):
            given.extend(iter(loader))
        assert len(given) == 2, name
    join()


def test_data_sets_whose_length_lies() -> None:
    class Lying(Samples):
        def __getitem__(self, index: int) -> Any:
            return [1.0, 2.0, 3.0][index]

    for workers in (0, 3):
        with pytest.raises(IndexError):
            list(DataLoader(Lying(float, 0), 2, num_workers=workers, device=None))
    join()


def test_many_loops_that_are_left() -> None:
    """Threads and memory do not pile up."""
    data = dl.data.spiral(64)
    for number in range(2000 if FULL else 50):
        for _ in itertools.islice(DataLoader(data, 8, num_workers=3, device=None), number % 9):
            time.sleep(0)
    join()
