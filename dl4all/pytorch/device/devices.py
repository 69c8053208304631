"""Which dl4all device a PyTorch device index means, and how PyTorch is told of the device type."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from dl4all.errors import UnknownDeviceError
from dl4all.runtime import registry
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device

NAME = "dlall"
"""The device type. PyTorch's parser of device strings takes letters only, so it cannot be ``dl4all``."""


@functools.cache
def names() -> tuple[str, ...]:
    """The dl4all devices by index: the one that ``auto`` takes, then the others of ``dl4all devices``.

    Each piece of hardware appears once, by its first backend. The order is fixed at the first use.
    """
    first = open_device("auto")
    others = [f"{info.backends[0]}:{info.index}" for info in registry.devices()]
    others = [name.removesuffix(":0") if name.startswith("cpu:") else name for name in others]
    own = first.name.partition(":")
    same = (
        {first.name, f"vulkan:{own[2]}", f"kompute:{own[2]}"}
        if own[0] in ("vulkan", "kompute")
        else {first.name}
    )
    return (first.name, *(name for name in others if name not in same))


_opened: dict[int, Device] = {}
_indices: dict[Device, int] = {}


def device_at(index: int) -> Device:
    """The dl4all device of ``dlall:index``; -1, PyTorch's "none given", is the current one.

    Raises:
        UnknownDeviceError: there are not so many devices.
        ForkError: the process was forked from one that had opened the device.
    """
    device = _opened.get(index)
    if device is None:
        if not -1 <= index < len(names()):
            raise UnknownDeviceError(
                f"[{NAME}] there is no {NAME}:{index}; the devices are {', '.join(names())}"
            )
        index = current() if index < 0 else index
        device = _opened[index] = open_device(names()[index])
        _indices[device] = index
    return device


def index_of_device(device: Device) -> int:
    """The index of any dl4all device.

    Raises:
        UnknownDeviceError: it has none.
    """
    if device not in _indices:
        if device.name not in names():
            raise UnknownDeviceError(f"[{NAME}] {device} is none of {', '.join(names())}")
        device_at(names().index(device.name))
    return _indices[device]


def index_of_opened(device: Device) -> int:
    """The index of a device that :func:`device_at` has opened."""
    return _indices[device]


class _CurrentDevice(threading.local):
    """The index that is meant where none is given, of each thread, as PyTorch has it for CUDA."""

    index = 0


_current = _CurrentDevice()
when_not_first: Callable[[], None] | None = None
"""Called when another index than 0 becomes the current one for the first time."""


def current() -> int:
    """The index that is meant where none is given."""
    return _current.index


def set_current(index: int) -> None:
    """Make an index the one that is meant where none is given, in this thread.

    Raises:
        UnknownDeviceError: there are not so many devices.
    """
    global when_not_first
    if index == _current.index:
        return
    device_at(index)
    if when_not_first is not None:
        tell, when_not_first = when_not_first, None
        tell()
    _current.index = index


def index_of(device: torch.device | int | str | None) -> int:
    """The index that a PyTorch device stands for, the current one where it names none.

    Raises:
        UnknownDeviceError: it is of another type.
    """
    if device is None:
        return _current.index
    if isinstance(device, int):
        return device
    if not isinstance(device, torch.device):
        device = torch.device(device)
    if device.type != NAME:
        raise UnknownDeviceError(f"[{NAME}] expected a {NAME} device, got {device}")
    return _current.index if device.index is None else device.index


def is_here(value: Any) -> bool:
    """Whether a value is a tensor on a dlall device."""
    return isinstance(value, torch.Tensor) and value.device.type == NAME
