"""Huge allocations: a buffer for each, of just its size.

Cutting small allocations out of one would keep all of it. A freed buffer waits for a request of nearly its
size, and is the first to go back to the driver when something else needs memory.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator

from dl4all.allocator.allocation import Allocation, aligned, extent
from dl4all.allocator.budget import Driver
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.protocols import Buffer, Span

GRAIN = 64 << 10  # bytes of a driver's page
WASTE = 16  # a buffer serves requests that leave less than this part of it unused


class Direct:
    """Buffers that are never cut."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._range_limit = driver.limits.storage_buffer_range
        self._free: list[tuple[int, int, Buffer]] = []  # sizes, numbers and buffers, sorted
        self._count = 0

    def allocate(self, nbytes: int) -> Allocation | None:
        index = bisect_left(self._free, nbytes, key=lambda item: item[0])
        if index == len(self._free) or self._free[index][0] - nbytes > nbytes // WASTE:
            return None
        return self._allocation(self._free.pop(index)[2], nbytes)

    def grow(self, nbytes: int) -> Allocation:
        size = min(aligned(nbytes, GRAIN), max(nbytes, self._driver.limits.allocation_size))
        try:
            return self._allocation(self._driver.allocate(size), nbytes)
        except OutOfMemoryError:
            if not self._free:
                raise
        self._driver.free(list(self.idle()))
        return self._allocation(self._driver.allocate(size), nbytes)

    def _allocation(self, buffer: Buffer, nbytes: int) -> Allocation:
        return Allocation(
            Span(buffer, 0, extent(buffer.nbytes, nbytes, self._range_limit)), buffer.nbytes, self
        )

    def free(self, allocation: Allocation) -> None:
        self.adopt(allocation.span.buffer)

    def idle(self, least: int = 0) -> Iterator[Buffer]:
        while self._free and self._free[-1][0] >= least:
            yield self._free.pop()[2]

    def adopt(self, buffer: Buffer) -> None:
        self._count += 1
        insort(self._free, (buffer.nbytes, self._count, buffer))

    def largest(self) -> int:
        return self._free[-1][0] if self._free else 0

    def rebuild(self, held: Collection[Allocation]) -> None:
        used = {one.span.buffer for one in held if one.strategy is self}
        self._free = [item for item in self._free if item[2] not in used]

    def blocks(self, held: Iterable[Allocation]) -> Iterator[Buffer]:
        yield from (one.span.buffer for one in held if one.strategy is self)
        yield from (buffer for _, _, buffer in self._free)
