"""Events that streams, tasks and devices tell the profile that is active."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dl4all.runtime.profiler import recorder
from dl4all.runtime.profiler.recorder import RecordedEvent, Recorder

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device
    from dl4all.scheduler.streams.task import State, Task


class _Here(threading.local):
    """The stream that this thread runs a task of; no names outside."""

    device = stream = ""
    virtual = False


_here = _Here()


def begin(task: Task, device: Device) -> Callable[[Task, State], None] | None:
    """Called by the thread of a stream when it has begun a task; the result is to be called at its end."""
    active = recorder.active
    if active is None:
        return None
    _here.device, _here.stream = device.name, threading.current_thread().name
    _here.virtual = task.on_virtual_clock
    event = active.task(
        task.name,
        device.name,
        _here.stream,
        task.thread,
        task.begun,
        number=task.number,
        submitted=task.submitted,
        phase=task.phase,
        clock="virtual" if task.on_virtual_clock else "host",
    )
    return functools.partial(_end, active, event)


def _end(active: Recorder, event: RecordedEvent, task: Task, state: State) -> None:
    _here.device = _here.stream = ""
    _here.virtual = False
    active.end_task(event, task.ended, state)


def wait(name: str, task: Task, device: str = "") -> AbstractContextManager[None]:
    """Within the ``with`` block, this thread waits for a task of a device, or for what it asked of it."""
    active = recorder.active
    if active is None:
        return contextlib.nullcontext()
    if _here.stream:
        return active.wait(name, _here.device, _here.stream, task.number, virtual=_here.virtual)
    return active.wait(name, device, "", task.number, virtual=task.on_virtual_clock)


def wait_for_device(device: Device) -> AbstractContextManager[None]:
    """Within the ``with`` block, this thread waits for a device.

    A stream that waits for its own device does nothing else meanwhile, but the device does.
    """
    active = recorder.active
    if active is None or device.is_cpu or device.name == _here.device:
        return contextlib.nullcontext()
    if _here.stream:
        return active.wait(str(device), _here.device, _here.stream, -1, virtual=_here.virtual)
    return active.wait(str(device), device.name, "", -1, virtual=device.simulated is not None)
