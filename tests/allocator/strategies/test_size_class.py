"""Size classes, and buffers that are reused whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dl4all.allocator.budget import Driver
from dl4all.allocator.strategies.size_class import GRAIN, Pool, size_class
from dl4all.runtime.device_info import Limits
from tests.support.fake_backend import MIB, FakeBackend

UNLIMITED = 2**62


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


def make(limits: Limits | None = None) -> tuple[FakeBackend, Pool]:
    backend = FakeBackend(limits=limits)
    return backend, Pool(Driver(backend, backend.wait))


@pytest.mark.parametrize(
    "limits",
    [
        Limits(storage_buffer_range=9 * MIB, allocation_size=2**40),
        Limits(storage_buffer_range=2**40, allocation_size=9 * MIB),
    ],
)
def test_the_pool_respects_both_limits(limits: Limits) -> None:
    _, pool = make(limits)
    assert pool.grow(9 * MIB - 5).size == 9 * MIB  # the class would be 10 MiB
    assert pool.grow(8 * MIB + 1).size == 9 * MIB


def test_a_freed_buffer_serves_the_next_request_of_its_class() -> None:
    _, pool = make()
    first, other = pool.grow(5000), pool.grow(5000)
    assert first.span.buffer is not other.span.buffer
    pool.free(first)
    assert pool.allocate(5100) is first
    assert pool.allocate(5000) is None


def test_another_class_is_not_served() -> None:
    _, pool = make()
    pool.free(pool.grow(5000))
    assert pool.allocate(6000) is None
    assert pool.allocate(3000) is None


def test_the_oldest_comes_first() -> None:
    _, pool = make()
    allocations = [pool.grow(5000) for _ in range(5)]
    for index in (3, 0, 4, 1, 2):
        pool.free(allocations[index])
    assert [pool.allocate(5000) for _ in range(5)] == allocations


def test_idle_buffers_can_be_taken_and_given() -> None:
    _, pool = make()
    allocations = [pool.grow(nbytes) for nbytes in (1000, 70_000, 5000)]
    for allocation in allocations[:2]:
        pool.free(allocation)
    assert pool.largest() == allocations[1].size
    assert [buffer.nbytes for buffer in pool.idle(2000)] == [allocations[1].size]
    (small,) = pool.idle()
    pool.adopt(small)
    again = pool.allocate(1000)
    assert again is not None
    assert again.span.buffer is small
    assert list(pool.idle()) == []
