"""A function that a stream runs, and its outcome."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from dl4all.errors import CancelledError, DeviceError
from dl4all.runtime import fork
from dl4all.runtime.profiler import phase, recorder
from dl4all.runtime.simulated import clock
from dl4all.runtime.threads import AGAIN
from dl4all.scheduler.monitor import profile_events

State = Literal["waiting", "running", "finished", "failed", "cancelled", "hung"]

_NEVER = threading.Lock()
_NEVER.acquire()  # who waits for it waits as for a device that does not answer


class Task:
    """A submitted function, as :meth:`dl4all.Stream.submit` returns it.

    ``submitted``, ``begun`` and ``ended`` are seconds: of ``time.perf_counter``, or of the virtual clock for
    a simulated device.

    Example:
        >>> import dl4all as dl
        >>> stream = dl.Stream("cpu")
        >>> stream.submit(lambda x: x.sum(), dl.ones(3, device="cpu")).result().item()
        3.0
    """

    # There are many, so that they have no lock: what must happen once is the pop of a list.
    __slots__ = (
        "_made_in", "_outcome", "_waiters", "_work", "begun", "device", "ended", "name", "note_end",
        "number", "on_virtual_clock", "phase", "priority", "state", "submitted", "thread", "virtual_ended",
        "virtual_submitted",
    )  # fmt: skip

    def __init__(
        self, work: Callable[[], Any], name: str = "", priority: int = 0, *, on_virtual_clock: bool = False
    ) -> None:
        self.name = name
        self.priority = priority
        self.number = 0  # given by its stream, as the name of the device is
        self.device = ""
        self.on_virtual_clock = on_virtual_clock
        self.state: State = "waiting"
        self.begun = self.ended = self.virtual_ended = math.nan
        self._work = [work]  # whoever takes it out runs the task, or has cancelled it
        self._waiters: list[threading.Lock] = []
        self._made_in = fork.generation  # the thread that is to run it is of this process
        self._outcome: Any = None  # the result, or the error and its traceback
        self.note_end: Callable[[Task, State], None] | None = None  # told before anybody who waits
        self.send()

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
        if not self._take():
            return self.state == "cancelled"
        self.end("cancelled", None)
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the task is done, at most `timeout` seconds of its clock; returns whether it is."""
        if recorder.active is None or self.done():
            return self._wait(timeout)
        with profile_events.wait(self.name, self):
            return self._wait(timeout)

    def _wait(self, timeout: float | None) -> bool:
        if timeout is not None and self.on_virtual_clock:
            # A virtual clock stands still while threads wait: what counts is the time of the outcome.
            until = clock.now() + timeout
            if not self.settle() or self.ended > until:
                clock.advance_to(until)
                return False
        elif not self.done():
            until = math.inf if timeout is None else time.perf_counter() + timeout
            if not self.settle(timeout):
                _NEVER.acquire(timeout=_allowed(until - time.perf_counter()))
                return False
        clock.advance_to(self.virtual_ended)
        return True

    def settle(self, timeout: float | None = None) -> bool:
        """Wait, in real seconds, until the task is done or known to hang; returns whether it is done.

        Raises:
            ForkError: it was left to the parent of this process.
        """
        if self.state in ("waiting", "running"):
            fork.check_own(self._made_in, "Task")
        until = math.inf if timeout is None else time.perf_counter() + timeout
        left = math.inf
        while left > 0 and self.state in ("waiting", "running"):
            own = threading.Lock()
            own.acquire()
            self._waiters.append(own)
            left = until - time.perf_counter()
            if left > 0 and self.state in ("waiting", "running"):  # or it has ended, and wakes only others
                own.acquire(timeout=min(left, AGAIN))
            with contextlib.suppress(ValueError):
                self._waiters.remove(own)
        return self.done()

    def result(self, timeout: float | None = None) -> Any:
        """The result of the function, when it has returned.

        Raises:
            DeviceError: it was not done within `timeout` seconds.
            CancelledError: the task was cancelled.
            Exception: what the function raised.
        """
        if not self.wait(timeout):
            raise DeviceError(f"[Task] {self.name or self.number} was not done within {timeout} seconds")
        if self.state == "cancelled":
            raise CancelledError(f"[Task] {self.name or self.number} was cancelled")
        if self.state != "failed":
            return self._outcome
        error, traceback = self._outcome
        try:
            raise error.with_traceback(traceback)  # without the frames of those who asked before
        finally:
            del self, error, traceback  # the error's traceback holds this frame, and this frame would hold it

    # For what runs it

    def send(self) -> None:
        """It is submitted now."""
        self.thread, self.phase = threading.get_ident(), phase.current()
        self.virtual_submitted = clock.now()
        self.submitted = self.virtual_submitted if self.on_virtual_clock else time.perf_counter()

    def begin(self) -> Callable[[], Any] | None:
        """The function, if it is still to be run."""
        taken = self._take()
        if not taken:
            if self.state == "waiting":  # it is being cancelled, or that was cut short by an exception
                self.end("cancelled", None)
            return None
        self.begun = self.seconds()
        self.state = "running"
        return taken[0]

    def end(self, state: State, outcome: Any) -> None:
        """Keep what came of it, and wake those who wait."""
        if state == "failed":
            outcome = outcome, outcome.__traceback__
        self._outcome = outcome
        if state != "hung":
            self.virtual_ended = clock.now()
            self.ended = self.virtual_ended if self.on_virtual_clock else time.perf_counter()
        if self.note_end is not None:
            self.note_end(self, state)
        self.state = state  # last: who sees it reads the rest
        waiters = self._waiters
        while waiters:
            with contextlib.suppress(IndexError):  # one has given up meanwhile
                waiters.pop().release()

    def _take(self) -> list[Callable[[], Any]]:
        """The function, for the one who comes first."""
        try:
            return [self._work.pop()]
        except IndexError:
            return []


def _allowed(seconds: float) -> float:
    """A timeout that locks take."""
    return min(max(0.0, seconds), threading.TIMEOUT_MAX)
