"""Pieces of host memory that are used again: a network's step asks for the same sizes as the last one.

A new array of NumPy costs more than half a microsecond with its address, which is a tenth of a small op. What
was just used is in the processor's cache, too, and has its pages: a large result is written in half the time.
"""

from __future__ import annotations

import sys
from typing import Any

from dl4all.allocator.allocation import Allocation
from dl4all.allocator.budget import Driver
from dl4all.runtime.cpu.buffer import CpuBuffer

KEPT_BYTES = 1 << 27  # in all pieces; a larger one is never kept
MOST = 64  # pieces of a size
SIZES = 512  # that are remembered
UNSHARED = 3  # references to an array that only its buffer has: that, a variable, and the question
UNSHARED_BASE = 2  # to the array of which that one is a part: that part, and the question


class HostMemory:
    """The free list of memory that is only counted; it keeps small pieces for the next request."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._spare: dict[int, list[Allocation]] = {}  # by size
        self._kept = 0  # bytes

    def take(self, nbytes: int) -> Allocation | None:
        """A piece of so many bytes that came back; None without one."""
        spare = self._spare.get(nbytes)
        if not spare:
            return None
        self._kept -= nbytes
        return spare.pop()

    def free(self, allocation: Allocation) -> None:
        """It is gone; nobody else's array may show it if it is to be used again."""
        size = allocation.size
        self._driver.reserved -= size  # as count, which would look for a peak
        if size <= KEPT_BYTES and _is_unshared(allocation.span.buffer):
            if self._kept + size > KEPT_BYTES:
                self.clear()  # sizes that nobody asks for any more are among them
            spare = self._spare.get(size)
            if spare is None:
                if len(self._spare) >= SIZES:
                    self.clear()
                spare = self._spare[size] = []
            if len(spare) < MOST:
                spare.append(allocation)
                self._kept += size

    def clear(self) -> None:
        """Keep nothing."""
        self._spare.clear()
        self._kept = 0


def _is_unshared(buffer: Any) -> bool:
    """Whether a buffer has memory of its own that no array shows but its own: views count for the base."""
    if not isinstance(buffer, CpuBuffer) or not buffer.own:
        return False
    array = buffer.data
    return sys.getrefcount(array) == UNSHARED and sys.getrefcount(array.base) == UNSHARED_BASE
