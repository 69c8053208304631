"""Logs of the launches of one op, for :mod:`dl4all.ops.core.kernels.launch_plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dl4all.allocator.storage import Storage
from dl4all.runtime.protocols import Dispatch
from dl4all.scheduler.listeners import Listener

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device

MOST_EVENTS = 200  # of an op with a plan


class Allocated(NamedTuple):
    """New memory, and what for."""

    storage: Storage
    tag: str


class Launched(NamedTuple):
    """A launch that ran."""

    command: Dispatch
    storages: tuple[Storage, ...]


class Guard(NamedTuple):
    """The launches hold as long as ``holds(storage)`` says so, for the operand that takes its place."""

    storage: Storage
    holds: Callable[[Storage], bool]


class LaunchLog(Listener):
    """The launches of a call on one device; none once something happened that they alone do not repeat."""

    __slots__ = ("device", "events", "guards", "is_complete")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.events: list[Allocated | Launched] = []
        self.guards: list[Guard] = []
        self.is_complete = True

    def allocated(self, device: Device, storage: Storage, tag: str) -> None:
        self._note(device, Allocated(storage, tag))

    def launched(self, device: Device, command: Dispatch, storages: tuple[Storage, ...]) -> None:
        self._note(device, Launched(command, storages))

    def _note(self, device: Device, event: Allocated | Launched) -> None:
        if self.is_complete:
            self.events.append(event)
            if device is not self.device or len(self.events) > MOST_EVENTS:
                self.unplanned()

    def guard(self, storage: Storage, holds: Callable[[Storage], bool]) -> None:
        self.guards.append(Guard(storage, holds))

    def refused(self, what: str) -> None:
        self.unplanned()

    def unplanned(self) -> None:
        self.is_complete = False
        self.events.clear()
