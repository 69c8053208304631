"""Records of the launches of one op, for :mod:`dl4all.ops.core.kernels.launch_plan`.

Devices tell :data:`active` of memory and launches. Whatever a repetition of the launches alone would leave
out (transfers, waits, random numbers, checks of indices, choices that may come out differently next time)
calls :func:`refuse`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dl4all.allocator.storage import Storage
from dl4all.runtime.protocols import Dispatch

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


class LaunchLog:
    """The launches of one thread on one device."""

    __slots__ = ("_thread", "device", "events", "guards", "refused")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.events: list[Allocated | Launched] = []
        self.guards: list[Guard] = []
        self.refused = False
        self._thread = threading.get_ident()

    def allocated(self, device: Device, storage: Storage, tag: str) -> None:
        """A device has allocated."""
        self._note(device, Allocated(storage, tag))

    def launched(self, device: Device, command: Dispatch, storages: tuple[Storage, ...]) -> None:
        """A device has been given a launch."""
        self._note(device, Launched(command, storages))

    def _note(self, device: Device, event: Allocated | Launched) -> None:
        if threading.get_ident() == self._thread and not self.refused:
            self.events.append(event)
            if device is not self.device or len(self.events) > MOST_EVENTS:
                self.refuse()

    def guard(self, storage: Storage, holds: Callable[[Storage], bool]) -> None:
        """The launches hold only where this does, for the operand in the place of `storage`."""
        if threading.get_ident() == self._thread:
            self.guards.append(Guard(storage, holds))

    def refuse(self) -> None:
        """Something happens that a repetition of the launches would leave out."""
        if threading.get_ident() == self._thread:
            self.refused = True
            self.events.clear()


active: LaunchLog | None = None
"""The log that is written, of whichever thread. One that took the place of another ends that."""


def refuse() -> None:
    """Tell the log that launches alone do not repeat what happens now."""
    if active is not None:
        active.refuse()
