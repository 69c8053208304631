"""Events: points in a stream that other streams and the host wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dl4all.errors import ArgumentError
from dl4all.runtime.profiler import recorder
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor import profile_events

if TYPE_CHECKING:
    from dl4all.scheduler.streams.stream import Stream
    from dl4all.scheduler.streams.task import Task


class StreamPoint(NamedTuple):
    """The progress of the device when a stream came to an event. The result of the event's task."""

    reached: Any  # the backend's event, or the virtual time of a simulated device
    seconds: float | None  # when that was, if it was asked for
    look: Callable[[], None]  # raises what kernels before it have found, when it has come


class Event:
    """A point in a stream: what was submitted before it, and what that asked of the device, has been done.

    Args:
        enable_timing: note when it comes, for :meth:`elapsed_time`. The stream waits for its device there.

    Example:
        >>> import dl4all as dl
        >>> stream = dl.Stream("cpu")
        >>> task = stream.submit(dl.ones, 3)
        >>> event = stream.record_event()
        >>> event.synchronize(timeout=10), task.done()
        (True, True)
    """

    def __init__(self, enable_timing: bool = False) -> None:
        self.task: Task | None = None  # reaches the point in its stream, which is its result
        self._timed = enable_timing

    def record(self, stream: Stream) -> None:
        """Make this the point that a stream has reached now."""
        stream.record_event(self)

    def wait(self, stream: Stream) -> None:
        """Let what a stream is given from now on begin when the event has come."""
        stream.wait_event(self)

    def stamp(self, device: Device) -> StreamPoint:
        """Called by the stream when it has come to this point."""
        if device.simulated is not None:
            device.simulated.check()
            reached = device.simulated.computed_until
            return StreamPoint(reached, max(reached, clock.now()) if self._timed else None, _nothing)
        if self._timed:
            device.synchronize()
        seconds = time.perf_counter() if self._timed else None
        look = partial(device.index_errors.look, device.index_errors.count)
        return StreamPoint(device.record_event(), seconds, look)

    def query(self) -> bool:
        """Whether it has come; an event that was never recorded has.

        On a virtual clock: whether it is known when it comes, and then this thread is there.
        """
        if self.task is None:
            return True
        if not self.task.done():
            return False
        reached = self.task.result().reached
        if isinstance(reached, float):
            clock.advance_to(reached)
            return True
        return bool(reached.query())

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for it, at most `timeout` seconds of its stream's clock; returns whether it has come.

        Raises:
            CancelledError: the stream was closed before.
            DeviceLostError
            ArgumentError: an index that an op before it took was out of range.
        """
        task = self.task
        if task is None:
            return True
        if recorder.active is None:
            return self._synchronize(task, timeout)
        with profile_events.wait("event", task, task.device):
            return self._synchronize(task, timeout)

    def _synchronize(self, task: Task, timeout: float | None) -> bool:
        until = None if timeout is None else task.seconds() + timeout
        if not task.wait(timeout):
            return False
        reached, _, look = task.result()
        if not isinstance(reached, float):
            left = None if until is None else max(0.0, until - task.seconds())
            if not reached.synchronize(left):
                return False
            look()
            return True
        clock.advance_to(reached if until is None else min(reached, until))
        return until is None or reached <= until

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to a later one, both made with ``enable_timing``.

        Raises:
            ArgumentError: one of them is not timed or not recorded, or only one is of a simulated device.
        """
        begun, ended = self._seconds(), end._seconds()
        if begun is None or ended is None:
            raise ArgumentError("[Event] both events must be recorded, and made with enable_timing=True")
        if begun[1] != ended[1]:
            raise ArgumentError("[Event] one event is on the virtual clock of simulated devices, one is not")
        return (ended[0] - begun[0]) * 1e3

    def _seconds(self) -> tuple[float, bool] | None:
        """When it came, and whether that is on the virtual clock."""
        self.synchronize()
        seconds = None if self.task is None else self.task.result().seconds
        return None if self.task is None or seconds is None else (seconds, self.task.on_virtual_clock)


def _nothing() -> None:
    """The findings where no kernel runs: none."""


def wait_for(task: Task) -> None:
    """Wait for the point that a task reaches. Run by a stream, which hangs if the other one does.

    Raises:
        CancelledError: the other stream was closed before.
        DeviceLostError
    """
    with profile_events.wait("event", task, task.device):
        task.settle()
        if task.state == "hung":
            raise Hang(f"[Stream] {task.name} of another stream's device does not come")
        reached = task.result().reached
        if isinstance(reached, float):
            clock.advance_to(reached)
        else:
            reached.synchronize()
