"""Reuse, statistics, and what happens when memory runs out, on a backend that counts."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dl4all.allocator.allocation import Stats
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.storage import Storage
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.device_info import Limits
from dl4all.runtime.protocols import Span
from tests.support.fake_backend import LIMITS, MIB, FakeBackend, give, make, take

STRATEGIES = ("pool", "best_fit")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_stats_add_up(strategy: str) -> None:
    backend, allocator = make(strategy)
    random = np.random.default_rng(1)
    held: list[Any] = []
    peak = allocated = count = 0
    for _ in range(2000):
        if held and random.random() < 0.5:
            allocation = held.pop(int(random.integers(len(held))))
            allocated -= allocation.nbytes
            give(allocation)
        elif random.random() < 0.01:
            allocator.trim()
        else:
            held.append(take(allocator, int(random.integers(1, 10 * MIB))))
            allocated += held[-1].nbytes
            count += 1
        peak = max(peak, allocated)
        stats = allocator.stats
        assert (stats.allocated, stats.reserved, stats.peak) == (allocated, backend.taken, peak)
        assert stats.hits + stats.misses == count
        assert set(allocator.live()) == set(held)
    assert stats.hits > 100
    allocator.reset_peak()
    assert allocator.stats.peak == allocated
    for allocation in held:
        give(allocation)
    allocator.trim()
    assert allocator.stats.reserved == backend.taken == 0


def test_stats_are_of_one_moment() -> None:
    _, allocator = make()
    before = allocator.stats
    take(allocator, 1000)
    assert before == Stats()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trim_frees_what_waits_and_only_that(strategy: str) -> None:
    backend, allocator = make(strategy)
    held = take(allocator, 3 * MIB)
    waiting = [take(allocator, n) for n in (2 * MIB, 1000, 40 * MIB)]
    for allocation in waiting:
        give(allocation)
    assert allocator.trim() > 0
    assert not held.span.buffer.freed
    assert backend.taken == allocator.stats.reserved >= held.size
    assert allocator.trim() == 0


# Out of memory


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("knows", [False, True])
def test_out_of_memory_trims_and_tries_again(strategy: str, knows: bool) -> None:
    backend, allocator = make(strategy, budget=10 * MIB, knows=knows)
    give(take(allocator, 6 * MIB))
    allocation = take(allocator, 8 * MIB)
    assert allocation.size == 8 * MIB
    assert backend.taken <= 10 * MIB


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_out_of_memory_with_nothing_to_trim(strategy: str) -> None:
    _, allocator = make(strategy, budget=10 * MIB)
    held = take(allocator, 8 * MIB, "conv2d")
    before = allocator.stats
    with pytest.raises(OutOfMemoryError, match="do not fit") as failure:
        take(allocator, 4 * MIB, "relu")
    text = str(failure.value)
    assert text.startswith("[relu] 4.0 MiB do not fit on fake: 8.0 MiB are in use")
    assert "8.0 MiB  conv2d" in text
    assert "4194304 bytes do not fit" in text  # what the driver said
    assert allocator.stats == before
    give(held)
    assert take(allocator, 4 * MIB).size == 4 * MIB


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_out_of_memory_although_trimmed(strategy: str) -> None:
    _, allocator = make(strategy, budget=10 * MIB)
    give(take(allocator, 2 * MIB))
    take(allocator, 8 * MIB)
    with pytest.raises(OutOfMemoryError, match="do not fit"):
        take(allocator, 4 * MIB)
    assert allocator.stats.reserved == 8 * MIB


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_users_limit_counts_like_the_drivers(strategy: str) -> None:
    backend, allocator = make(strategy)
    allocator.driver.limit = 10 * MIB
    held = take(allocator, 8 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"the limit is 10\.0 MiB"):
        take(allocator, 4 * MIB)
    give(held)
    take(allocator, 9 * MIB)
    assert backend.taken <= 10 * MIB


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cycles_of_python_objects_are_collected_before_giving_up(strategy: str) -> None:
    _, allocator = make(strategy, budget=10 * MIB)
    gc.disable()
    try:
        cycle: list[Any] = [allocator.storage(8 * MIB)]
        cycle.append(cycle)
        del cycle
        assert take(allocator, 8 * MIB).size == 8 * MIB
    finally:
        gc.enable()


def test_no_more_allocations_than_the_driver_allows() -> None:
    backend, allocator = make("pool", limits=Limits(2**40, 2**40, allocations=116))
    allocations = [take(allocator, 1000 * n) for n in range(1, 101)]
    with pytest.raises(OutOfMemoryError, match="100 of 116 allocations are in use"):
        take(allocator, 1)
    give(allocations[99])
    take(allocator, 1)
    assert backend.asked == 101


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_single_allocation_may_fail(strategy: str) -> None:
    """A program goes on after any failure, and ends with nothing on loan."""
    sizes = [int(n) for n in np.random.default_rng(0).integers(1, 5 * MIB, 60)]

    def program(backend: FakeBackend, allocator: Allocator) -> None:
        held: list[Storage] = []
        for i, nbytes in enumerate(sizes):
            held.append(allocator.storage(nbytes))
            if i % 3 == 0:
                del held[: len(held) // 2]

    backend, allocator = make(strategy)
    program(backend, allocator)
    for number in range(1, backend.asked + 1):
        backend, allocator = make(strategy)
        backend.failures = set(range(number, number + 4))  # the repeated tries, too
        with pytest.raises(OutOfMemoryError):
            program(backend, allocator)
        assert allocator.stats.allocated == 0
        backend.failures.clear()
        program(backend, allocator)
        assert allocator.stats.allocated == 0
        allocator.trim()
        assert backend.taken == allocator.stats.reserved == 0


# Threads and garbage collection


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_garbage_collection_in_the_middle_of_allocate(strategy: str) -> None:
    backend, allocator = make(strategy)
    garbage = [allocator.storage(5 * MIB) for _ in range(3)]
    backend.during = garbage.clear  # the storages go while the driver is asked
    take(allocator, 5 * MIB)
    assert allocator.stats.allocated == 5 * MIB
    reserved = allocator.stats.reserved
    for _ in range(3):
        take(allocator, 5 * MIB)
    assert allocator.stats.reserved <= reserved


def test_garbage_collection_in_the_middle_of_trim() -> None:
    """What comes back while the device is waited for may be in use by a later command."""
    backend, allocator = make("pool")
    garbage: list[Storage] = []

    def wait() -> None:
        garbage.clear()
        backend.waited = True

    allocator.driver._synchronize = wait
    garbage.append(allocator.storage(5000))
    late = garbage[0].allocation
    assert late is not None
    give(take(allocator, 5000))
    assert allocator.trim() == late.size
    assert not late.span.buffer.freed
    assert take(allocator, 5000) is late


def test_release_in_a_thread_that_holds_the_device() -> None:
    """trim waits for the device with the allocator locked; a storage may end where the device is locked."""
    device, trimming = threading.Lock(), threading.Event()
    backend, allocator = make("pool", budget=10 * MIB)

    def wait() -> None:
        trimming.set()
        with device:
            backend.waited = True

    allocator.driver._synchronize = wait
    give(take(allocator, 8 * MIB))
    storage = [allocator.storage(1)]

    def launch() -> None:
        with device:
            allocating.start()
            trimming.wait()
            storage.clear()

    allocating = threading.Thread(
        target=take,
        args=(
            allocator,
            4 * MIB,
        ),
        daemon=True,
    )
    launching = threading.Thread(target=launch, daemon=True)
    launching.start()
    for thread in (launching, allocating):
        thread.join(20)
        assert not thread.is_alive(), "the two threads wait for each other"
    assert allocator.stats.allocated == 4 * MIB


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_threads(strategy: str) -> None:
    backend, allocator = make(strategy, budget=64 * MIB)
    owners: dict[tuple[int, int], int] = {}

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(500):
            allocation = take(allocator, int(random.integers(1, 4 * MIB)))
            place = id(allocation.span.buffer), allocation.span.offset
            assert owners.setdefault(place, number) == number, "memory with two owners"
            del owners[place]
            give(allocation)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    stats = allocator.stats
    assert stats.allocated == 0
    assert stats.reserved == backend.taken
    assert stats.hits + stats.misses == 8 * 500
    assert allocator.trim() == stats.reserved
    assert backend.taken == 0


# Storages


def test_a_storage_goes_back_with_its_last_owner() -> None:
    _, allocator = make("pool")
    storage = allocator.storage(1000)
    views = [storage, storage]
    buffer = storage.buffer
    del storage
    views.pop()
    assert allocator.stats.allocated == 1000
    views.pop()
    assert allocator.stats.allocated == 0
    assert take(allocator, 1000).span.buffer is buffer


def test_memory_of_the_host_is_counted() -> None:
    _, allocator = make()
    storage = allocator.adopt(Span(CpuBuffer.empty(1000), 0, 1000), 1000, "upload")
    assert allocator.stats == Stats(1000, 1000, 1000, 1000)
    del storage
    assert allocator.stats == Stats(0, 0, 1000, 1000)


def test_a_size_of_its_own_for_everything() -> None:
    """Small, large and huge allocations come from different strategies, and all go back."""
    backend, allocator = make("best_fit", limits=LIMITS)
    sizes = (1, 64, 4096, 4097, MIB, 255 * MIB, 256 * MIB, 700 * MIB)
    allocations = [take(allocator, nbytes) for nbytes in sizes]
    assert [allocation.size >= allocation.nbytes for allocation in allocations] == [True] * len(sizes)
    assert {type(allocation.strategy).__name__ for allocation in allocations} == {
        "Slabs",
        "BestFit",
        "Direct",
    }
    for allocation in allocations:
        give(allocation)
    asked = backend.asked
    assert take(allocator, 690 * MIB) is not None  # nearly the size of what waits
    assert backend.asked == asked
    take(allocator, 400 * MIB)  # not: it would leave too much of it unused
    assert backend.asked == asked + 1
