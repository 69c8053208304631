"""Reuse of freed buffers by size class.

Asking a driver for memory takes tens to hundreds of microseconds, and some drivers allow only
4096 allocations at a time; a network asks for the same sizes over and over. Sizes are rounded up
to one of four classes per power of two (above 1 KiB at most 25 % more than asked for), and a freed buffer
waits in its class for the next request. The oldest is taken first: a loop that asks for the same
sizes in the same order then gets the same buffers every time, and whatever a backend keeps for a set
of buffers is found again. Reuse is ordered by the device's stream: a new owner's
commands run after those of the last one, so nothing has to be waited for.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from dl4all.errors import OutOfMemoryError
from dl4all.runtime.backend import Buffer
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.profiler import recorder

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


@dataclass
class Stats:
    """Bytes and counts since the pool was made."""

    allocated: int = 0  # bytes in use, rounded up to their classes
    reserved: int = 0  # bytes taken from the driver, in use or waiting
    peak: int = 0  # the most that was ever in use
    hits: int = 0  # requests served from a freed buffer
    misses: int = 0  # requests that went to the driver


class Source(Protocol):
    """Where a pool's memory comes from: a backend."""

    @property
    def info(self) -> DeviceInfo: ...

    def allocate(self, nbytes: int) -> Buffer: ...


class Pool:
    """Buffers of one backend. Every method may be called from any thread.

    Garbage collection may call ``release`` at any moment: in the middle of ``allocate``, and in a
    thread that holds the device's lock, which ``trim`` asks for while it holds the pool's. So
    ``release`` takes no lock; what it was given is sorted in by the next ``allocate`` or ``trim``.
    """

    def __init__(self, backend: Source, synchronize: Callable[[], None], name: str = "") -> None:
        self._backend = backend
        self._name = name  # of the device, in profiles
        self._synchronize = synchronize
        self._returned: deque[Buffer] = deque()
        self._numbers: dict[Buffer, int] = {}  # in the order the driver gave them
        self._free: defaultdict[int, list[tuple[int, Buffer]]] = defaultdict(list)  # heaps
        self._lock = threading.RLock()
        self._stats = Stats()

    @property
    def stats(self) -> Stats:
        """The numbers of this moment."""
        with self._lock:
            self._sort_in()
            return replace(self._stats)

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`, with undefined contents.

        Raises:
            OutOfMemoryError: the driver has none left, even after the waiting buffers went back.
        """
        size = self._class(nbytes)
        with self._lock:
            self._sort_in()
            waiting = self._free[size]
            reused = bool(waiting)
            if reused:
                _, buffer = heapq.heappop(waiting)
                self._stats.hits += 1
            else:
                buffer = self._ask_driver(size)
            self._stats.allocated += buffer.nbytes
            self._stats.peak = max(self._stats.peak, self._stats.allocated)
        active = recorder.active
        if active is not None:
            active.allocation(self._name, buffer.nbytes, "pool" if reused else "driver")
        return buffer

    def _ask_driver(self, size: int) -> Buffer:
        try:
            buffer = self._backend.allocate(size)
        except OutOfMemoryError:
            if not self.trim():
                raise
            buffer = self._backend.allocate(size)
        self._stats.misses += 1
        self._numbers[buffer] = self._stats.misses
        self._stats.reserved += buffer.nbytes
        return buffer

    def _class(self, nbytes: int) -> int:
        limits = self._backend.info.limits
        return size_class(nbytes, min(limits.storage_buffer_range, limits.allocation_size))

    def release(self, buffer: Buffer) -> None:
        """Take back a buffer that :meth:`allocate` gave."""
        self._returned.append(buffer)

    def _sort_in(self) -> None:
        while self._returned:
            buffer = self._returned.popleft()
            self._stats.allocated -= buffer.nbytes
            heapq.heappush(self._free[buffer.nbytes], (self._numbers[buffer], buffer))

    def trim(self) -> int:
        """Give every waiting buffer back to the driver; returns how many bytes that were."""
        freed = 0
        with self._lock:
            self._sort_in()  # before waiting: what comes back later may still be in use
            self._synchronize()
            for waiting in list(self._free.values()):
                while waiting:
                    _, buffer = waiting.pop()
                    del self._numbers[buffer]
                    freed += buffer.nbytes
                    buffer.free()
            self._stats.reserved -= freed
        return freed
