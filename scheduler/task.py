"""A function that a stream runs, and its outcome."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from dl4all.errors import CancelledError, DeviceError
from dl4all.runtime.profiler import phase, recorder
from dl4all.runtime.simulated import clock
from dl4all.scheduler import profile_events

State = Literal["waiting", "running", "finished", "failed", "cancelled", "hung"]


class Task:
    """What :meth:`dl4all.Stream.submit` returns.

    ``submitted``, ``begun`` and ``ended`` are seconds: of ``time.perf_counter``, or of the virtual clock for
    a simulated device.

    Example:
        >>> import dl4all as dl
        >>> stream = dl.Stream("cpu")
        >>> stream.submit(lambda x: x.sum(), dl.ones(3, device="cpu")).result().item()
        3.0
    """

    __slots__ = (
        "_changed", "_outcome", "_work", "begun", "ended", "name", "note_end", "number",
        "on_virtual_clock", "phase", "priority", "state", "submitted", "thread",
    )  # fmt: skip

    def __init__(
        self, work: Callable[[], Any], name: str, priority: int, number: int, *, on_virtual_clock: bool
    ) -> None:
        self.name = name
        self.priority = priority
        self.number = number
        self.on_virtual_clock = on_virtual_clock
        self.state: State = "waiting"
        self.submitted = self.seconds()
        self.thread, self.phase = threading.get_ident(), phase.current()  # that it was submitted in
        self.begun = self.ended = math.nan
        self._work: Callable[[], Any] | None = work
        self._outcome: Any = None  # the result, or the error
        self._changed = threading.Condition()
        self.note_end: Callable[[Task], None] | None = None  # told before anybody who waits

    def __repr__(self) -> str:
        return f"<task {self.name or self.number} {self.state}>"

    def seconds(self) -> float:
        """The present time on this task's clock."""
        return clock.now() if self.on_virtual_clock else time.perf_counter()

    def done(self) -> bool:
        """Whether it has finished, failed or been cancelled."""
        return self.state in ("finished", "failed", "cancelled")

    def cancel(self) -> bool:
        """Keep the task from running; returns whether that was still possible."""
        with self._changed:
            if self.state != "waiting":
                return self.state == "cancelled"
            self._settle("cancelled", None)
            return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task is done, at most `timeout` seconds of its clock; returns whether it is."""
        if recorder.active is None or self.done():
            return self._wait(timeout)
        with profile_events.wait(self.name, self):
            return self._wait(timeout)

    def _wait(self, timeout: float | None) -> bool:
        begun = self.seconds()
        with self._changed:
            # A virtual clock stands still while threads wait: what counts there is the time of the outcome.
            real = None if self.on_virtual_clock else timeout
            self._changed.wait_for(lambda: self.done() or self._is_late(timeout), real)
            if not self.done() or (timeout is not None and self.ended > begun + timeout):
                if self.on_virtual_clock and timeout is not None:
                    clock.advance_to(begun + timeout)
                return False
        if self.on_virtual_clock:
            clock.advance_to(self.ended)
        return True

    def _is_late(self, timeout: float | None) -> bool:
        return self.state == "hung" and self.on_virtual_clock and timeout is not None

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned, when it has.

        Raises:
            DeviceError: it was not done within `timeout` seconds.
            CancelledError: the task was cancelled.
            Exception: what the function raised.
        """
        if not self.wait(timeout):
            raise DeviceError(f"[Task] {self.name or self.number} was not done within {timeout} seconds")
        if self.state == "cancelled":
            raise CancelledError(f"[Task] {self.name or self.number} was cancelled")
        if self.state == "failed":
            raise self._outcome
        return self._outcome

    # For the stream that runs it

    def begin(self) -> Callable[[], Any] | None:
        """The function, if it is still to be run."""
        with self._changed:
            if self.state != "waiting":
                return None
            self.state = "running"
            self.begun = self.seconds()
            return self._work

    def end(self, state: State, outcome: Any) -> None:
        """Keep what came of it."""
        with self._changed:
            self._settle(state, outcome)

    def _settle(self, state: State, outcome: Any) -> None:
        self.state, self._outcome, self._work = state, outcome, None
        if state != "hung":
            self.ended = self.seconds()
        if self.note_end is not None:
            self.note_end(self)
        self._changed.notify_all()
