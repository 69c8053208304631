"""Streams and events of ``dlall``.

A device does what PyTorch asks of it in one order, so every stream of a device is the same queue: code for
several streams is right, and gains nothing. Events are points in that queue.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch

from dl4all.errors import ArgumentError
from dl4all.pytorch.device import devices
from dl4all.pytorch.device.devices import NAME, device_at, index_of

PRIVATE_USE = 20
"""The number of PyTorch's device type for backends like this one, ``c10::DeviceType::PrivateUse1``."""


class Stream(torch.Stream):
    """The queue of a device. `priority` means nothing.

    >>> import torch, dl4all.torch
    >>> stream = torch.dlall.Stream()
    >>> with stream:
    ...     x = torch.ones(3, device="dlall") * 2
    >>> stream.synchronize(), stream.query()
    (None, True)
    """

    def __new__(cls, device: Any = None, priority: int = 0, **options: Any) -> Stream:
        made: Stream = super().__new__(
            cls, stream_id=0, device_index=index_of(device), device_type=PRIVATE_USE
        )
        return made

    def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
        self._entered: list[int] = []

    def __enter__(self) -> Stream:
        self._entered.append(devices.current())
        devices.set_current(self.device_index)
        return self

    def __exit__(self, *error: object) -> None:
        devices.set_current(self._entered.pop())

    def query(self) -> bool:
        """Whether everything that was asked of the device is done."""
        return bool(device_at(self.device_index).record_event().query())

    def synchronize(self) -> None:
        """Wait until everything that was asked of the device is done."""
        device_at(self.device_index).synchronize()

    def record_event(self, event: Any = None) -> Any:
        """The point behind what the device was asked so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Let what comes later begin when an event has come."""
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        """Let what comes later begin when another stream has done what it was given."""
        self.wait_event(stream.record_event())


class Event(torch.Event):
    """A point in the queue of a device.

    Args:
        device: ignored: an event is of the device that records it.
        enable_timing: note when it comes; the host waits for the device there.

    >>> import torch, dl4all.torch
    >>> begin, end = (torch.dlall.Event(enable_timing=True) for _ in range(2))
    >>> begin.record()
    >>> x = torch.ones(3, device="dlall") * 2
    >>> end.record()
    >>> begin.elapsed_time(end) >= 0
    True
    """

    def __new__(cls, device: Any = None, enable_timing: bool = False, **options: Any) -> Event:
        made: Event = super().__new__(cls)
        return made

    def __init__(self, device: Any = None, enable_timing: bool = False, **options: Any) -> None:
        self._timed = enable_timing
        self._index = index_of(device)
        self._reached: Any = None
        self._seconds: float | None = None

    def __repr__(self) -> str:
        return f"torch.dlall.Event(device={self.device}, recorded={self._reached is not None})"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(NAME, self._index)

    def record(self, stream: Any = None) -> None:
        """Make this the point that a stream has reached, the current device's by default."""
        self._index = devices.current() if stream is None else stream.device_index
        device = device_at(self._index)
        if self._timed:
            device.synchronize()
            self._seconds = time.perf_counter()
        self._reached = device.record_event()

    def wait(self, stream: Any = None) -> None:
        """Let what comes later in a stream begin when this has come: where it is of another device, now."""
        index = devices.current() if stream is None else stream.device_index
        if index != self._index:
            self.synchronize()

    def query(self) -> bool:
        """Whether it has come; one that was never recorded has."""
        return self._reached is None or bool(self._reached.query())

    def synchronize(self) -> None:
        """Wait for it."""
        if self._reached is not None:
            self._reached.synchronize(None)

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds from this event to a later one.

        Raises:
            ArgumentError: one of the two is not recorded, or was not made with ``enable_timing=True``.
        """
        begun, ended = self._seconds, getattr(end, "_seconds", None)
        if begun is None or ended is None:
            raise ArgumentError(
                "[Event] elapsed_time needs two recorded events that were made with enable_timing=True"
            )
        return float(ended - begun) * 1e3


def current_stream(device: Any = None) -> Stream:
    """The stream of a device; there is one."""
    return Stream(device)


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """Make the device of a stream the current one."""
    devices.set_current(stream.device_index)


def stream(stream: Any) -> Any:
    """A context in which a stream is the current one; nothing where it is None."""
    return contextlib.nullcontext() if stream is None else stream
