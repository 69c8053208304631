"""Size classes, reuse, and what the pool does when memory runs out, on a backend that counts."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dl4all.allocator.pool import GRAIN, Pool, Stats, size_class
from dl4all.allocator.storage import Storage
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.cpu.backend import describe
from dl4all.runtime.info import Limits

MIB = 1 << 20
UNLIMITED = 2**62


class FakeBuffer:
    """Knows whether it is still the driver's."""

    def __init__(self, backend: FakeBackend, nbytes: int) -> None:
        self.backend, self.nbytes, self.freed = backend, nbytes, False
        self.mapped = None

    def free(self) -> None:
        """Give it back, once."""
        assert not self.freed
        assert self.backend.waited, "freed without waiting for the device"
        self.freed = True
        self.backend.taken -= self.nbytes


class FakeBackend:
    """So much memory, and no more."""

    def __init__(self, budget: int = UNLIMITED, limits: Limits | None = None) -> None:
        limits = limits or Limits(storage_buffer_range=2**40, allocation_size=2**40)
        self.info = dataclasses.replace(describe(), limits=limits)
        self.stream: Any = None
        self.features: frozenset[str] = frozenset()
        self.budget, self.taken, self.asked = budget, 0, 0
        self.waited = False
        self.during: Callable[[], None] = lambda: None

    def allocate(self, nbytes: int) -> FakeBuffer:
        """What the driver does; `during` is what happens meanwhile."""
        self.asked += 1
        self.waited = False
        self.during()
        if self.taken + nbytes > self.budget:
            raise OutOfMemoryError(f"[fake] {nbytes} bytes do not fit")
        self.taken += nbytes
        return FakeBuffer(self, nbytes)

    def program(self, module: Any, constants: Any) -> Any:
        """Never asked for."""
        raise AssertionError

    def close(self) -> None:
        """Nothing to do."""

    def wait(self) -> None:
        """Stands for the device's synchronize."""
        self.waited = True


def make(budget: int = UNLIMITED, limits: Limits | None = None) -> tuple[FakeBackend, Pool]:
    backend = FakeBackend(budget, limits)
    return backend, Pool(backend, backend.wait)


# Size classes


def sizes() -> list[int]:
    """From 1 byte to 1 TiB, close to powers of two and anywhere."""
    random = np.random.default_rng(0)
    near = [2**power + off for power in range(41) for off in (-1, 0, 1) if 2**power + off > 0]
    anywhere = [int(2**power) for power in random.uniform(0, 40, 3000)]
    return sorted({*near, *anywhere})


def test_classes_are_multiples_of_the_grain_and_large_enough() -> None:
    for nbytes in sizes():
        size = size_class(nbytes, UNLIMITED)
        assert size >= nbytes
        assert size % GRAIN == 0
        assert size_class(size, UNLIMITED) == size


def test_classes_waste_at_most_a_quarter() -> None:
    for nbytes in sizes():
        size = size_class(nbytes, UNLIMITED)
        assert size - nbytes < GRAIN if nbytes <= 1024 else size <= 1.25 * nbytes


@pytest.mark.parametrize("largest", [UNLIMITED, 2**27, 2**32 - 1, 2**31 - 1, 2**30 + 12345])
def test_classes_grow_with_the_size(largest: int) -> None:
    classes = [size_class(nbytes, largest) for nbytes in sizes()]
    assert all(a <= b for a, b in pairwise(classes))


def test_there_are_four_classes_for_each_power_of_two() -> None:
    for power in range(11, 40):
        between = [n for n in sizes() if 2**power < n <= 2 ** (power + 1)]
        assert len({size_class(nbytes, UNLIMITED) for nbytes in between}) == 4


@pytest.mark.parametrize("largest", [2**27, 2**32 - 1, 2**31 - 1, 2**30 + 12345, 0xFFE00000])
def test_what_a_device_can_take_is_not_rounded_past_that(largest: int) -> None:
    usable = largest // GRAIN * GRAIN
    for nbytes in [*sizes(), usable, usable - 1, usable - GRAIN, usable - 300 * GRAIN]:
        size = size_class(nbytes, largest)
        assert size >= nbytes
        assert size % GRAIN == 0
        assert nbytes > usable or size <= largest


@pytest.mark.parametrize(
    "limits",
    [
        Limits(storage_buffer_range=9 * MIB, allocation_size=2**40),
        Limits(storage_buffer_range=2**40, allocation_size=9 * MIB),
    ],
)
def test_the_pool_respects_both_limits(limits: Limits) -> None:
    _, pool = make(limits=limits)
    assert pool.allocate(9 * MIB - 5).nbytes == 9 * MIB  # the class would be 10 MiB
    assert pool.allocate(8 * MIB + 1).nbytes == 9 * MIB


# Reuse


def test_a_released_buffer_serves_the_next_request_of_its_class() -> None:
    backend, pool = make()
    first = pool.allocate(5000)
    other = pool.allocate(5000)
    assert other is not first
    pool.release(first)
    assert pool.allocate(5100) is first
    assert pool.allocate(5000) not in (first, other)
    assert backend.asked == 3


def test_another_class_is_not_served() -> None:
    _, pool = make()
    small = pool.allocate(5000)
    pool.release(small)
    assert pool.allocate(6000) is not small
    assert pool.allocate(3000) is not small


def test_stats_add_up() -> None:
    backend, pool = make()
    random = np.random.default_rng(1)
    held: list[Any] = []
    peak = hits = misses = 0
    for _ in range(2000):
        if held and random.random() < 0.5:
            pool.release(held.pop(int(random.integers(len(held)))))
        elif random.random() < 0.01:
            pool.trim()
        else:
            asked = backend.asked
            held.append(pool.allocate(int(random.integers(1, 10 * MIB))))
            misses += backend.asked - asked
            hits += 1 - (backend.asked - asked)
        allocated = sum(buffer.nbytes for buffer in held)
        peak = max(peak, allocated)
        assert pool.stats == Stats(allocated, backend.taken, peak, hits, misses)
        assert len(set(map(id, held))) == len(held)
        assert not any(buffer.freed for buffer in held)
    assert hits > 100


def test_stats_are_of_one_moment() -> None:
    _, pool = make()
    before = pool.stats
    pool.allocate(1000)
    assert before == Stats()


def test_trim_frees_what_waits_and_only_that() -> None:
    backend, pool = make()
    held, waiting = pool.allocate(1000), [pool.allocate(n) for n in (1000, 1000, 70_000)]
    for buffer in waiting:
        pool.release(buffer)
    assert pool.trim() == sum(buffer.nbytes for buffer in waiting)
    assert all(buffer.freed for buffer in waiting)  # type: ignore[attr-defined]
    assert backend.taken == held.nbytes == pool.stats.reserved == pool.stats.allocated
    assert pool.trim() == 0


# Out of memory


def test_out_of_memory_trims_and_tries_again() -> None:
    backend, pool = make(budget=10 * MIB)
    pool.release(pool.allocate(8 * MIB))
    buffer = pool.allocate(4 * MIB)
    assert backend.taken == buffer.nbytes == 4 * MIB
    assert pool.stats == Stats(4 * MIB, 4 * MIB, 8 * MIB, 0, 2)


def test_out_of_memory_with_nothing_to_trim() -> None:
    backend, pool = make(budget=10 * MIB)
    held = pool.allocate(8 * MIB)
    before = pool.stats
    with pytest.raises(OutOfMemoryError, match="do not fit"):
        pool.allocate(4 * MIB)
    assert backend.asked == 2  # no second try
    assert pool.stats == before
    pool.release(held)
    assert pool.allocate(4 * MIB).nbytes == 4 * MIB


def test_out_of_memory_although_trimmed() -> None:
    backend, pool = make(budget=10 * MIB)
    pool.release(pool.allocate(2 * MIB))
    held = pool.allocate(8 * MIB)
    with pytest.raises(OutOfMemoryError, match="do not fit"):
        pool.allocate(4 * MIB)
    assert pool.stats == Stats(8 * MIB, 8 * MIB, 8 * MIB, 0, 2)
    assert backend.taken == held.nbytes


# Threads and garbage collection


def test_garbage_collection_in_the_middle_of_allocate() -> None:
    backend, pool = make()
    garbage = [Storage(pool.allocate(5000), 5000, pool) for _ in range(3)]
    backend.during = garbage.clear  # the storages go while the pool asks the driver
    new = pool.allocate(5000)
    assert pool.stats == Stats(new.nbytes, 4 * new.nbytes, 4 * new.nbytes, 0, 4)
    assert len({id(pool.allocate(5000)) for _ in range(3)} - {id(new)}) == 3
    assert backend.asked == 4


def test_garbage_collection_in_the_middle_of_trim() -> None:
    """What comes back while the pool waits for the device may be in use by a later command."""
    backend = FakeBackend()
    garbage: list[Storage] = []

    def wait() -> None:
        garbage.clear()
        backend.waited = True

    pool = Pool(backend, wait)
    late: Any = pool.allocate(5000)
    garbage.append(Storage(late, 5000, pool))
    pool.release(pool.allocate(5000))
    assert pool.trim() == late.nbytes
    assert not late.freed
    assert pool.allocate(5000) is late


def test_release_in_a_thread_that_holds_the_device() -> None:
    """trim waits for the device with the pool locked; a storage may end where the device is locked."""
    device, trimming = threading.Lock(), threading.Event()
    backend = FakeBackend(budget=10 * MIB)

    def wait() -> None:
        trimming.set()
        with device:
            backend.waited = True

    pool = Pool(backend, wait)
    pool.release(pool.allocate(8 * MIB))
    storage = [Storage(pool.allocate(1), 1, pool)]

    def launch() -> None:
        with device:
            allocating.start()
            trimming.wait()
            storage.clear()

    allocating = threading.Thread(target=pool.allocate, args=(4 * MIB,), daemon=True)
    launching = threading.Thread(target=launch, daemon=True)
    launching.start()
    for thread in (launching, allocating):
        thread.join(20)
        assert not thread.is_alive(), "the two threads wait for each other"
    assert pool.stats.allocated == 4 * MIB


def test_many_threads() -> None:
    backend, pool = make(budget=64 * MIB)
    owners: dict[int, int] = {}

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(500):
            buffer = pool.allocate(int(random.integers(1, 4 * MIB)))
            assert owners.setdefault(id(buffer), number) == number, "a buffer with two owners"
            del owners[id(buffer)]
            pool.release(buffer)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    stats = pool.stats
    assert stats.allocated == 0
    assert stats.reserved == backend.taken
    assert stats.hits + stats.misses == 8 * 500
    assert pool.trim() == stats.reserved
    assert backend.taken == 0


# Storages


def test_a_storage_goes_back_with_its_last_owner() -> None:
    _, pool = make()
    storage = Storage(pool.allocate(1000), 1000, pool)
    views = [storage, storage]
    buffer = storage.buffer
    del storage
    views.pop()
    assert pool.stats.allocated == buffer.nbytes
    views.pop()
    assert pool.stats.allocated == 0
    assert pool.allocate(1000) is buffer


def test_a_storage_without_a_pool_goes_back_to_nobody() -> None:
    backend, pool = make()
    buffer = FakeBuffer(backend, 1024)
    Storage(buffer, 1000, None)
    assert pool.stats == Stats()
    assert not buffer.freed
