"""Counters of devices while they work, and the devices, streams and groups that there are."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device
    from dl4all.scheduler.streams.group import DeviceGroup
    from dl4all.scheduler.streams.stream import Stream


class Counters:
    """Numbers of one device since it was opened. Plain ints: counting must cost next to nothing."""

    __slots__ = ("downloaded", "host_finished", "host_kernels", "launches", "uploaded")

    def __init__(self) -> None:
        self.launches = 0  # of shaders
        self.host_kernels = 0  # NumPy bodies that were begun: all kernels of the CPU, fallbacks of others
        self.host_finished = 0  # those that have ended
        self.uploaded = 0  # bytes
        self.downloaded = 0


devices: weakref.WeakSet[Device] = weakref.WeakSet()
"""All that are alive."""

streams: weakref.WeakSet[Stream] = weakref.WeakSet()
"""All that are alive."""

groups: weakref.WeakSet[DeviceGroup] = weakref.WeakSet()
"""All that are alive."""


def forget_plans() -> None:
    """Have ops look again at which kernels they launch, on every device."""
    for device in tuple(devices):
        device.plans.clear()
