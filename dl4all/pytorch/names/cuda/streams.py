"""``torch.cuda.streams``: a device does what it is asked in one order, so that each stream of it is that one.

Code for several streams is right, and gains nothing; :class:`dl4all.Stream` is a queue with a thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.pytorch.names import accelerator
from dl4all.scheduler.device import current

__all__ = ["CudaEvent", "CudaStream", "current_stream", "default_stream", "set_stream", "stream"]


class CudaEvent:
    """A point in what a device is asked.

    Args:
        enable_timing: note when it comes, for :meth:`elapsed_time`; the host waits for the device there.
        blocking: without effect.
        interprocess: without effect.

    Example:
        >>> import dl4all as dl
        >>> begin, end = (dl.cuda.Event(enable_timing=True) for _ in range(2))
        >>> begin.record()
        >>> x = dl.ones(3) * 2
        >>> end.record()
        >>> begin.elapsed_time(end) >= 0
        True
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._timed = enable_timing
        self._seconds: float | None = None
        self._reached: Any = None

    def record(self, stream: CudaStream | None = None) -> None:
        """Make this the point that a stream has come to, the current device's by default."""
        device = current.device() if stream is None else stream.device
        if self._timed:
            device.synchronize()
            self._seconds = time.perf_counter()
        self._reached = device.record_event()

    def wait(self, stream: CudaStream | None = None) -> None:
        """Let what comes later in a stream begin when this has come."""
        self.synchronize()

    def query(self) -> bool:
        """Whether it has come; one that was never recorded has."""
        return self._reached is None or bool(self._reached.query())

    def synchronize(self) -> None:
        """Wait for it."""
        if self._reached is not None:
            self._reached.synchronize(None)

    def elapsed_time(self, end_event: CudaEvent) -> float:
        """The milliseconds until another event.

        Raises:
            ArgumentError: one of them was not recorded, or not made with ``enable_timing=True``.
        """
        if self._seconds is None or end_event._seconds is None:
            raise ArgumentError(
                "[Event.elapsed_time] both events must be made with enable_timing=True and be recorded"
            )
        return (end_event._seconds - self._seconds) * 1e3


class CudaStream:
    """The order of what a device is asked; `priority` means nothing.

    Example:
        >>> import dl4all as dl
        >>> side = dl.cuda.Stream("cpu")
        >>> with dl.cuda.stream(side):
        ...     x = dl.ones(2)
        >>> side.synchronize(), side.query()
        (None, True)
    """

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self.device = current.device("auto" if device is None else accelerator.numbered(device))

    def __enter__(self) -> CudaStream:
        self.device.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.device.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaStream) and self.device is other.device

    def __hash__(self) -> int:
        return hash(self.device)

    def query(self) -> bool:
        """Whether everything that was asked of the device is done."""
        return bool(self.device.record_event().query())

    def synchronize(self) -> None:
        """Wait until everything that was asked of the device is done."""
        self.device.synchronize()

    def record_event(self, event: CudaEvent | None = None) -> CudaEvent:
        """The point behind what the device was asked so far."""
        event = CudaEvent() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: CudaEvent) -> None:
        """Let what comes later begin when an event has come."""
        event.wait(self)

    def wait_stream(self, stream: CudaStream) -> None:
        """Let what comes later begin when another stream has done what it was given."""
        if stream.device is not self.device:
            stream.synchronize()


def current_stream(device: Any = None) -> CudaStream:
    """The stream of the current device, or of another one.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.current_stream() == dl.cuda.default_stream()
        True
    """
    return CudaStream(device)


default_stream = current_stream


@contextlib.contextmanager
def stream(stream: CudaStream | None) -> Iterator[None]:
    """A block in which new tensors go to the device of a stream; None changes nothing.

    Example:
        >>> import dl4all as dl
        >>> with dl.cuda.stream(None):
        ...     x = dl.ones(2)
    """
    with contextlib.nullcontext() if stream is None else stream:
        yield


def set_stream(stream: CudaStream | None) -> None:
    """Have new tensors go to the device of a stream; None changes nothing.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.set_stream(None)
    """
    if stream is not None:
        current.set_default_device(stream.device)
