"""A driver that counts, streams whose time is set by hand, and a device's allocator over both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dl4all.allocator.allocation import Allocation
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.by_size import choose
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.cpu.backend import describe
from dl4all.runtime.device_info import Limits
from dl4all.runtime.protocols import Memory
from dl4all.runtime.unowned import unowned

MIB = 1 << 20
UNLIMITED = 2**50
LIMITS = Limits(storage_buffer_range=2**40, allocation_size=2**40)


class FakeBuffer:
    """Knows whether it is still the driver's."""

    def __init__(self, backend: FakeBackend, nbytes: int) -> None:
        self.backend, self.nbytes, self.freed = backend, nbytes, False
        self.mapped = None

    def free(self) -> None:
        """Give it back, once; after an exception it may be tried again."""
        if self.freed and self.backend.interrupted:
            return
        assert not self.freed
        assert self.backend.waited, "freed without waiting for the device"
        self.freed = True
        self.backend.taken -= self.nbytes
        self.backend.buffers.discard(self)


class FakeBackend:
    """So much memory, and no more. `knows` says whether it can tell how much is left."""

    def __init__(self, budget: int = UNLIMITED, limits: Limits | None = None, *, knows: bool = False) -> None:
        self.info = dataclasses.replace(describe(), limits=limits or LIMITS)
        self.budget, self.taken, self.asked, self.knows = budget, 0, 0, knows
        self.waited = False
        self.interrupted = False
        self.buffers: set[FakeBuffer] = set()
        self.during: Callable[[], None] = lambda: None
        self.failures: set[int] = set()  # which requests fail, counted from 1

    def allocate(self, nbytes: int) -> FakeBuffer:
        """What the driver does; `during` is what happens meanwhile."""
        self.asked += 1
        self.waited = False
        self.during()
        if self.taken + nbytes > self.budget or self.asked in self.failures:
            raise OutOfMemoryError(f"[fake] {nbytes} bytes do not fit")
        self.taken += nbytes
        buffer = FakeBuffer(self, nbytes)
        self.buffers.add(buffer)
        return buffer

    def unowned(self) -> list[FakeBuffer]:
        """What nobody holds, after an exception; else whoever lets go of one without freeing it is wrong."""
        return unowned(self.buffers) if self.interrupted else []

    def memory(self) -> Memory:
        """What is left, or far too much."""
        return Memory(self.budget - self.taken if self.knows else UNLIMITED, UNLIMITED)

    def wait(self) -> None:
        """Stands for the device's synchronize."""
        self.waited = True


class FakeEvent:
    """Comes when its stream has gone so far."""

    def __init__(self, stream: FakeStream, at: int) -> None:
        self.stream, self.at = stream, at

    def query(self) -> bool:
        return self.stream.done >= self.at

    def synchronize(self, timeout: float | None = None) -> bool:
        self.stream.done = max(self.stream.done, self.at)
        return True


class FakeStream:
    """Commands are counted as they are recorded, and as they are done."""

    def __init__(self) -> None:
        self.recorded = self.done = 0

    def record_event(self) -> FakeEvent:
        return FakeEvent(self, self.recorded)


def make(
    strategy: str = "pool", budget: int = UNLIMITED, limits: Limits | None = None, *, knows: bool = False
) -> tuple[FakeBackend, Allocator]:
    """An allocator on a backend with so much memory; `strategy` is "pool" or "best_fit"."""
    backend = FakeBackend(budget, limits, knows=knows)
    record: Callable[[Any], Any] = FakeStream.record_event
    made = Allocator(
        backend, lambda driver: choose(driver, 64, strategy), backend.wait, record, FakeStream(), name="fake"
    )
    return backend, made


_taken: dict[Allocation, Storage] = {}


def take(allocator: Allocator, nbytes: int, tag: str = "", stream: Any = None) -> Allocation:
    """An allocation on loan until :func:`give`."""
    storage = allocator.storage(nbytes, tag, stream)
    assert storage.allocation is not None
    _taken[storage.allocation] = storage
    return storage.allocation


def give(allocation: Allocation) -> None:
    """It goes back."""
    del _taken[allocation]
