"""Events: points in a stream that other streams and the host wait for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from dl4all.errors import ArgumentError
from dl4all.runtime.profiler import recorder
from dl4all.runtime.simulated import clock
from dl4all.scheduler import profile_events
from dl4all.scheduler.device import Device

if TYPE_CHECKING:
    from dl4all.scheduler.stream import Stream
    from dl4all.scheduler.task import Task


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
        self.task: Task | None = None  # reaches the point in its stream
        self._timed = enable_timing
        self._device: Device | None = None
        self._reached: Any = None  # the backend's event, or the virtual time of a simulated device
        self._seconds: float | None = None

    def record(self, stream: Stream) -> None:
        """Make this the point that a stream has reached now."""
        stream.record_event(self)

    def wait(self, stream: Stream) -> None:
        """Let what a stream is given from now on begin when the event has come."""
        stream.wait_event(self)

    def stamp(self, device: Device) -> None:
        """Called by the stream when it has come to this point."""
        self._device = device
        if self._timed:
            device.synchronize()
            self._seconds = time.perf_counter() if device.simulated is None else clock.now()
        self._reached = device.record_event() if device.simulated is None else device.simulated.computed_until

    def query(self) -> bool:
        """Whether it has come; an event that was never recorded has."""
        if self.task is None:
            return True
        if not self.task.done():
            return False
        self.task.result()
        return isinstance(self._reached, float) or bool(self._reached.query())

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for it, at most `timeout` seconds; returns whether it has come.

        Raises:
            CancelledError: the stream was closed before.
            DeviceLostError
        """
        if self.task is None:
            return True
        if recorder.active is None:
            return self._synchronize(self.task, timeout)
        with profile_events.wait("event", self.task, "" if self._device is None else self._device.name):
            return self._synchronize(self.task, timeout)

    def _synchronize(self, task: Task, timeout: float | None) -> bool:
        begun = time.perf_counter()
        if not task.wait(timeout):
            return False
        task.result()
        if isinstance(self._reached, float):
            clock.advance_to(self._reached)
            return True
        left = None if timeout is None else max(0.0, timeout - (time.perf_counter() - begun))
        return bool(self._reached.synchronize(left))

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to a later one, both made with ``enable_timing``.

        Raises:
            ArgumentError: one of them is not timed, or was not recorded.
        """
        for event in (self, end):
            event.synchronize()
        if self._seconds is None or end._seconds is None:
            raise ArgumentError("[Event] both events must be recorded, and made with enable_timing=True")
        return (end._seconds - self._seconds) * 1e3
