"""Host memory that the device copies from and to, kept for one copy after the other.

A copy to the host that nobody waits for yet holds its memory until somebody has read it, and one from the
host may be behind others. For how long is unknown: so these buffers are taken and given back in any order,
where those of a ring are used in turns and waited for.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence

from dl4all.allocator.allocation import aligned
from dl4all.errors import OutOfMemoryError
from dl4all.runtime import fork
from dl4all.runtime.protocols import Backend, Buffer, Event

GRAIN = 64 << 10  # sizes are multiples of it
KEPT_BYTES = 64 << 20  # that may lie idle
WASTE = 2  # times as large as needed a buffer may be


class _Memory:
    """A buffer, and when it is of use again."""

    __slots__ = ("buffer", "events")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.events: Sequence[Event] | None = ()  # None: not known yet


class Staging:
    """A buffer on loan for as long as this object lives."""

    __slots__ = ("__weakref__", "_memory")

    def __init__(self, memory: _Memory) -> None:
        self._memory = memory

    @property
    def buffer(self) -> Buffer:
        """The buffer."""
        return self._memory.buffer

    def used_until(self, event: Event) -> None:
        """No command uses the buffer when this event has come."""
        self._memory.events = (event,)


class StagingPool:
    """Buffers of kind ``host``. Every method may be called from any thread.

    Args:
        backend: where they come from.
        record_events: the points that all streams of the device have reached. A buffer that came back without
            an event, because an exception cut short who had it, is of use again behind them.
    """

    def __init__(self, backend: Backend, record_events: Callable[[], Sequence[Event]]) -> None:
        self._backend, self._record_events = backend, record_events
        self._lock = fork.rlock()
        self._lent: dict[weakref.ref[Staging], _Memory] = {}
        # The interpreter itself puts here what is garbage: Python code there would swallow an interrupt.
        self._returned: deque[weakref.ref[Staging]] = deque()
        self._idle: list[_Memory] = []  # those given back last at the end

    def take(self, nbytes: int) -> Staging:
        """A buffer of at least `nbytes` that no command uses.

        Raises:
            OutOfMemoryError: there is no host memory that the device can reach.
        """
        nbytes = aligned(nbytes, GRAIN)
        self._note_returned()
        with self._lock:
            self._sort_in()
            fitting = [
                memory
                for memory in self._idle
                if nbytes <= memory.buffer.nbytes <= WASTE * nbytes and _is_free(memory)
            ]
            if fitting:
                return self._lend(min(fitting, key=lambda memory: memory.buffer.nbytes))
        try:
            buffer = self._backend.allocate(nbytes, "host")
        except OutOfMemoryError:
            self.clear()
            buffer = self._backend.allocate(nbytes, "host")
        with self._lock:
            return self._lend(_Memory(buffer))

    def _lend(self, memory: _Memory) -> Staging:
        staging = Staging(memory)
        self._lent[weakref.ref(staging, self._returned.append)] = memory
        memory.events = None
        self._idle = [other for other in self._idle if other is not memory]
        return staging

    def clear(self) -> None:
        """Free all that is not in use."""
        self._note_returned()
        with self._lock:
            self._sort_in()
            self._shrink(0)

    def _note_returned(self) -> None:
        """Find out when memory is of use that came back without an event. Takes locks of streams."""
        for reference in tuple(self._returned):
            memory = self._lent.get(reference)
            if memory is not None and memory.events is None:
                memory.events = self._record_events()

    def _sort_in(self) -> None:
        left = deque[weakref.ref[Staging]]()
        while self._returned:
            reference = self._returned[0]
            memory = self._lent.get(reference)
            if memory is not None and memory.events is None:  # it has come back just now
                left.append(reference)
            elif memory is not None:
                if memory not in self._idle:
                    self._idle.append(memory)
                self._lent.pop(reference, None)
            self._returned.popleft()
        self._returned.extend(left)
        lent = set(self._lent.values())
        self._idle = [memory for memory in self._idle if memory not in lent]
        self._shrink(KEPT_BYTES)

    def _shrink(self, most: int) -> None:
        """Free what was given back longest ago, until so many bytes are left."""
        nbytes = sum(memory.buffer.nbytes for memory in self._idle)
        kept, going = [], []
        for memory in self._idle:
            if nbytes > most and _is_free(memory):
                nbytes -= memory.buffer.nbytes
                going.append(memory.buffer)
            else:
                kept.append(memory)
        self._idle = kept
        for buffer in going:
            buffer.free()


def _is_free(memory: _Memory) -> bool:
    return memory.events is not None and all(event.query() for event in memory.events)
