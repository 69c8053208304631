"""Host memory that the device copies from and to, kept for one copy after the other.

A copy to the host that nobody waits for yet holds its memory until somebody has read it, and one from the
host may be behind others. For how long is unknown: so these buffers are taken and given back in any order,
where those of a ring are used in turns and waited for.
"""

from __future__ import annotations

from collections import deque

from dl4all.allocator.allocation import aligned
from dl4all.errors import OutOfMemoryError
from dl4all.runtime import fork
from dl4all.runtime.protocols import Backend, Buffer, Event

GRAIN = 64 << 10  # sizes are multiples of it
KEPT_BYTES = 64 << 20  # that may lie idle
WASTE = 2  # times as large as needed a buffer may be


class StagingPool:
    """Buffers of kind ``host``. Every method may be called from any thread."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = fork.lock()
        self._returned: deque[tuple[Event, Buffer]] = deque()
        self._idle: list[tuple[Event, Buffer]] = []  # those given back last at the end

    def take(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` that no command uses.

        Raises:
            OutOfMemoryError: there is no host memory that the device can reach.
        """
        nbytes = aligned(nbytes, GRAIN)
        with self._lock:
            self._sort_in()
            fitting = [
                entry
                for entry in self._idle
                if nbytes <= entry[1].nbytes <= WASTE * nbytes and entry[0].query()
            ]
            if fitting:
                found = min(fitting, key=lambda entry: entry[1].nbytes)
                self._idle.remove(found)
                return found[1]
        try:
            return self._backend.allocate(nbytes, "host")
        except OutOfMemoryError:
            self.clear()
            return self._backend.allocate(nbytes, "host")

    def give(self, event: Event, buffer: Buffer) -> None:
        """Take back a buffer, of use again when `event` has come. Garbage collection may call it anywhere."""
        self._returned.append((event, buffer))

    def clear(self) -> None:
        """Free all that is not in use."""
        with self._lock:
            self._sort_in()
            self._shrink(0)

    def _sort_in(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        self._shrink(KEPT_BYTES)

    def _shrink(self, most: int) -> None:
        """Free what was given back longest ago, until so many bytes are left."""
        nbytes = sum(buffer.nbytes for _, buffer in self._idle)
        kept = []
        for event, buffer in self._idle:
            if nbytes > most and event.query():
                nbytes -= buffer.nbytes
                buffer.free()
            else:
                kept.append((event, buffer))
        self._idle = kept
