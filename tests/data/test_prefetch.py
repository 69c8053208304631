"""Threads that make batches: how they are left, what hangs, and what ends them."""

from __future__ import annotations

import contextlib
import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dl4all.data import DataLoader, prefetch
from dl4all.errors import DataError, DataTimeoutError
from tests.support.loader_threads import join

pytestmark = pytest.mark.usefixtures("deadline")


class Samples:
    """Numbers; the one at `at` calls a function first."""

    def __init__(self, at: int, function: Callable[[], Any], count: int = 12) -> None:
        self.at, self.function, self.count = at, function, count
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        if index == self.at:
            self.function()
        return np.float32(index)


@pytest.fixture
def hanging() -> Iterator[Samples]:
    """Data whose sample 5 does not come before the test is over."""
    over = threading.Event()
    yield Samples(5, over.wait)
    over.set()
    join()


def values(batches: Any) -> Iterator[list[float]]:
    return (batch.tolist() for batch in batches)


@pytest.mark.parametrize("workers", [1, 3])
def test_leaving_early_begins_no_other_batch(workers: int) -> None:
    """What a worker does not yet work at is left, though it was asked for; and the threads end."""
    leaving = threading.Event()
    data = Samples(1, leaving.wait, 100)
    for _ in DataLoader(data, num_workers=workers, prefetch=8, device=None):
        break
    leaving.set()
    join()
    assert set(data.read) <= set(range(8 * workers))
    if workers == 1:
        assert set(data.read) <= {0, 1}


@pytest.mark.parametrize("place", [None, "cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_a_batch_that_does_not_come_in_time(hanging: Samples, place: str | None) -> None:
    """The error names it, after all batches before it; and the loader can be used again."""
    loader = DataLoader(hanging, 2, num_workers=2, timeout=0.2, device=place)
    given: list[Any] = []
    with pytest.raises(
        DataTimeoutError, match=r"batch 2 .* 0.2 seconds: worker dl4all-data_\d is at sample 5"
    ):
        given.extend(values(loader))
    assert given == [[0, 1], [2, 3]]
    join(hung=1)
    hanging.at = -1
    assert len(list(values(loader))) == 6
    assert issubclass(DataTimeoutError, TimeoutError)


def test_a_function_that_hangs_is_named() -> None:
    over = threading.Event()

    def waiting(samples: list[Any]) -> Any:
        over.wait()
        return samples

    loader = DataLoader([1, 2], 1, num_workers=1, collate_fn=waiting, timeout=0.1, device=None)
    with pytest.raises(DataTimeoutError, match="worker dl4all-data_0 is at collate_fn"):
        list(loader)
    over.set()
    join()


@pytest.mark.parametrize("place", [None, pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_a_loop_can_be_left_while_a_worker_hangs(hanging: Samples, place: str | None) -> None:
    """By break, by an error, by closing it; later loops have threads of their own."""
    loader = DataLoader(hanging, 1, num_workers=2, prefetch=4, device=place)
    for _ in loader:
        break
    with contextlib.suppress(ZeroDivisionError):
        for _ in loader:
            1 / 0  # noqa: B018
    batches: Any = iter(loader)
    next(batches)
    batches.close()
    join(hung=3)


@pytest.mark.parametrize("workers", [1, 2])
def test_prefetching_is_bounded(workers: int) -> None:
    """At most workers * prefetch batches are asked for and not used."""
    data = Samples(-1, int, 40)
    batches = iter(DataLoader(data, num_workers=workers, prefetch=3, device=None))
    for used in range(1, 20):
        next(batches)
        assert len(data.read) < used + 3 * workers
    list(batches)
    assert sorted(data.read) == list(range(40))


def ends(error: BaseException) -> Callable[[], Any]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("error", [StopIteration("x"), GeneratorExit("x")], ids=repr)
@pytest.mark.parametrize("whose", ["data set", "collate_fn"])
def test_no_exception_ends_an_epoch_silently(workers: int, error: BaseException, whose: str) -> None:
    loader = DataLoader(Samples(5, ends(error)), 2, num_workers=workers, device=None)
    if whose == "collate_fn":

        def make(samples: list[Any]) -> Any:
            return ends(error)() if 5 in samples else np.stack(samples)

        loader = DataLoader(Samples(-1, int), 2, num_workers=workers, collate_fn=make, device=None)
    name = type(error).__name__
    given: list[Any] = []
    with pytest.raises(DataError, match=rf"{name}\('x'\) came out of .*{whose}.*, in batch 2") as caught:
        given.extend(values(loader))
    assert given == [[0, 1], [2, 3]]
    assert caught.value.__cause__ is error
    join()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_no_worker_ends_the_process(error: BaseException) -> None:
    """In the loop's own thread these are the user's, and stay what they are."""
    for workers, expected in ((1, DataError), (0, type(error))):
        given: list[Any] = []
        with pytest.raises(expected) as caught:
            given.extend(values(DataLoader(Samples(5, ends(error)), 2, num_workers=workers, device=None)))
        assert given == [[0, 1], [2, 3]]
        assert "raise error" in "".join(traceback.format_exception(caught.value))
    join()


def test_errors_hold_no_batches() -> None:
    """What is raised in the loop does not keep itself alive, and with it all that its frames hold."""

    class Failed(Exception):
        pass

    def fail() -> None:
        raise Failed

    gc.disable()
    try:
        try:
            list(DataLoader(Samples(5, fail), 2, num_workers=1, device=None))
        except Failed as error:
            seen = weakref.ref(error)
        join()
        assert seen() is None
    finally:
        gc.enable()


def test_threads_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(prefetch.Worker, "start", refuse)
    with pytest.raises(DataError, match=r"started 0 of 4 threads and no more \(can't start new thread\)"):
        list(DataLoader([1, 2, 3], num_workers=4, device=None))


def test_more_workers_than_batches() -> None:
    loader = DataLoader(Samples(-1, int, 3), 2, num_workers=10**6, device=None)
    assert list(values(loader)) == [[0, 1], [2]]
    join()
