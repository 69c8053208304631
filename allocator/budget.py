"""The driver's memory, within a budget: where strategies get their buffers from."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol, runtime_checkable

from dl4all.errors import OutOfMemoryError
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Buffer, Memory

SPARE = 16  # allocations that are left for transfers and the driver itself


class MemorySource(Protocol):
    """The methods of a backend that a budget needs."""

    @property
    def info(self) -> DeviceInfo: ...

    def allocate(self, nbytes: int) -> Buffer: ...

    def memory(self) -> Memory: ...


@runtime_checkable
class Owning(Protocol):
    """A backend whose buffers do not go back by themselves."""

    def unowned(self) -> list[Buffer]:
        """The buffers that only the backend itself still knows of."""


class Driver:
    """Counts what is taken, and refuses what the budget does not allow.

    ``limit`` is the user's; the driver's own says how much it still has.
    """

    def __init__(self, backend: MemorySource, synchronize: Callable[[], None]) -> None:
        self.limits = backend.info.limits
        self.limit: int | None = None
        self.reserved = 0
        self.peak = 0
        self.asked = 0  # requests that succeeded
        self._backend = backend
        self._buffers: dict[Buffer, int] = {}  # all that were given and not yet given back, and their bytes
        self._synchronize = synchronize

    def room(self) -> int:
        """Bytes that may still be taken."""
        free = self._backend.memory().free
        return max(0, free if self.limit is None else min(free, self.limit - self.reserved))

    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes`.

        Raises:
            OutOfMemoryError: there is no room, or the driver refuses.
        """
        room = self.room()
        if nbytes > room:
            raise OutOfMemoryError(f"{nbytes} bytes are more than the {room} that may still be reserved")
        count = len(self._buffers)
        if count + SPARE >= max(self.limits.allocations, 2 * SPARE):
            raise OutOfMemoryError(f"{count} of {self.limits.allocations} allocations are in use")
        buffer = self._backend.allocate(nbytes)
        self._buffers[buffer] = buffer.nbytes  # a freed buffer may have none
        self.asked += 1
        self.count(buffer.nbytes)
        return buffer

    def count(self, nbytes: int) -> None:
        """So much more is reserved."""
        self.reserved += nbytes
        if self.reserved > self.peak:
            self.peak = self.reserved

    def free(self, buffers: list[Buffer]) -> int:
        """Wait until the device uses none of the buffers, and give them back; returns their bytes."""
        if not buffers:
            return 0
        self._synchronize()
        freed = 0
        for buffer in buffers:
            buffer.free()
            nbytes = self._buffers.pop(buffer)
            self.reserved -= nbytes
            freed += nbytes
        return freed

    def mend(self, known: Container[Buffer], counted: int) -> None:
        """Give back what is in nobody's hands after an exception, and count anew.

        Args:
            known: buffers that somebody has.
            counted: bytes that are only counted.
        """
        self.reserved = sum(self._buffers.values()) + counted
        self.free([buffer for buffer in self._buffers if buffer not in known])
        self.sweep()

    def sweep(self) -> None:
        """Give back what was being made when an exception came, so that nobody ever got it."""
        unowned = self._backend.unowned() if isinstance(self._backend, Owning) else []
        if unowned:
            self._synchronize()
        for buffer in unowned:
            buffer.free()

    def replace(self, buffers: list[Buffer], nbytes: int) -> list[Buffer]:
        """Give buffers back for one of `nbytes`; what is there instead: that one, or none if it fails."""
        self.free(buffers)
        try:
            return [self.allocate(nbytes)]
        except OutOfMemoryError:
            return []
