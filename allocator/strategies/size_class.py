"""Reuse of whole buffers by size class, for backends that cannot bind a buffer at an offset.

Asking a driver for memory takes tens to hundreds of microseconds, and some drivers allow only
4096 allocations at a time; a network asks for the same sizes over and over. Sizes are rounded up
to one of four classes per power of two (above 1 KiB at most 25 % more than asked for), and a freed buffer
waits in its class for the next request. The oldest is taken first: a loop that asks for the same
sizes in the same order then gets the same buffers every time, and whatever a backend keeps for a set
of buffers is found again.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from dl4all.allocator.allocation import Allocation
from dl4all.allocator.budget import Driver
from dl4all.runtime.protocols import Buffer, Span

GRAIN = 256  # every class is a multiple: no backend has to round further


def size_class(nbytes: int, largest: int) -> int:
    """`nbytes` rounded up to 1, 1.25, 1.5 or 1.75 times a power of two.

    A size below `largest` is not rounded past it, where a device could no longer take it.

    >>> [size_class(n, 2**27) for n in (1, 257, 1000, 1025, 2**27 - 4)]
    [256, 512, 1024, 1280, 134217728]
    """
    step = max(GRAIN, 1 << max(0, (nbytes - 1).bit_length() - 3))
    rounded = max(GRAIN, -(-nbytes // step) * step)
    if rounded <= largest:
        return rounded
    return max(largest // GRAIN, -(-nbytes // GRAIN)) * GRAIN


class Pool:
    """A buffer for each allocation."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._largest = min(driver.limits.storage_buffer_range, driver.limits.allocation_size)
        self._numbers: dict[Buffer, int] = {}  # in the order they came
        self._count = 0
        self._free: defaultdict[int, list[tuple[int, Allocation]]] = defaultdict(list)  # heaps

    def allocate(self, nbytes: int) -> Allocation | None:
        waiting = self._free.get(size_class(nbytes, self._largest))  # larger than any: no class for each
        return heapq.heappop(waiting)[1] if waiting else None

    def grow(self, nbytes: int) -> Allocation:
        buffer = self._driver.allocate(size_class(nbytes, self._largest))
        return self._allocation(buffer)

    def _allocation(self, buffer: Buffer) -> Allocation:
        self._count += 1
        self._numbers[buffer] = self._count
        return Allocation(Span(buffer, 0, buffer.nbytes), buffer.nbytes, self)

    def free(self, allocation: Allocation) -> None:
        heapq.heappush(self._free[allocation.size], (self._numbers[allocation.span.buffer], allocation))

    def idle(self, least: int = 0) -> Iterator[Buffer]:
        for size, waiting in self._free.items():
            while size >= least and waiting:
                buffer = waiting.pop()[1].span.buffer  # the end of a heap: a heap is left
                del self._numbers[buffer]
                yield buffer

    def adopt(self, buffer: Buffer) -> None:
        self.free(self._allocation(buffer))

    def largest(self) -> int:
        return max((size for size, waiting in self._free.items() if waiting), default=0)

    def rebuild(self, held: Collection[Allocation]) -> None:
        waiting = {
            allocation.span.buffer: allocation for heap in self._free.values() for _, allocation in heap
        }
        used = {one.span.buffer for one in held if one.strategy is self}
        self._free.clear()
        for buffer in self._numbers:
            if buffer not in used:
                whole = Span(buffer, 0, buffer.nbytes)
                self.free(waiting.get(buffer) or Allocation(whole, buffer.nbytes, self))

    def blocks(self, held: Iterable[Allocation]) -> Iterator[Buffer]:
        yield from self._numbers
