"""Recordings of commands, which a device runs many times."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from dl4all.runtime.protocols import Backend, Dispatch, Fill, Recording
from dl4all.scheduler import listeners
from dl4all.scheduler.device.transfers import Transfers
from dl4all.scheduler.monitor.counters import Counters


class Recordings:
    """The recordings of one device: ``device.recordings``."""

    def __init__(
        self, backend: Backend, lock: threading.RLock, transfers: Transfers, counters: Counters
    ) -> None:
        self._backend = backend
        self._stream = backend.stream
        self._lock = lock
        self._transfers = transfers
        self._counters = counters
        self._retired: deque[Recording] = deque()

    def record(self, commands: Sequence[Dispatch | Fill], changing: Iterable[int] = ()) -> Recording:
        """Prepare commands for :meth:`replay`.

        Args:
            commands: from :meth:`Device.prepare`, or fills.
            changing: the numbers of those of which replays may change spans and push constants.
        """
        with self._lock:
            if self._retired:
                self._stream.synchronize()  # they may still run
                while self._retired:
                    self._retired.popleft().free()
            return self._backend.record(commands, frozenset(changing))

    def retire(self, recording: Recording) -> None:
        """Release a recording that is not replayed any more, before the next one is made.

        Garbage collection may call this at any point of another call: it takes no lock.
        """
        self._retired.append(recording)

    def replay(self, recording: Recording, changes: Mapping[int, Dispatch]) -> None:
        """Run what was recorded, with some dispatches replaced, as one submission where the backend can."""
        listeners.unplanned()
        with self._lock:
            self._transfers.device_busy = True
            self._counters.launches += len(recording.commands)
            self._stream.replay(recording, changes)

    def run_commands(self, commands: Iterable[Dispatch | Fill]) -> None:
        """Run commands one by one, where nothing is recorded."""
        listeners.unplanned()
        with self._lock:
            self._transfers.device_busy = True
            for command in commands:
                if isinstance(command, Fill):
                    self._stream.fill(command)
                else:
                    self._counters.launches += 1
                    self._stream.dispatch(command)
