"""Memory of a device for several tensors at once, and of arrays of the host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dl4all.allocator.allocation import aligned
from dl4all.allocator.host_memory import KEPT_BYTES
from dl4all.allocator.planner import Arena, Lifetime, plan
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.best_fit import GRAIN
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Backend, Buffer, Span
from dl4all.scheduler import listeners
from dl4all.scheduler.device.transfers import bytes_of

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device

SLAB_BYTES = 1 << 16  # added to the room for many tensors: small ones lie in a slab
MAX_ROOM_BYTES = 64 << 20  # room that is made at once: no block of the pool is larger


class DeviceMemory:
    """Memory beyond :meth:`Device.allocate`: ``device.memory``."""

    def __init__(self, device: Device, backend: Backend) -> None:
        self._device = device
        self._backend = backend

    def make_room(self, sizes: Iterable[int]) -> None:
        """Have storages of so many bytes, which are allocated next, lie side by side if they can.

        Kernels that work on many tensors at once (an optimizer's) bind fewer buffers then.
        """
        device = self._device
        if device.alignment:
            nbytes = sum(aligned(size, max(device.alignment, GRAIN)) for size in sizes) + SLAB_BYTES
            with contextlib.suppress(OutOfMemoryError):
                device.allocate(min(nbytes, MAX_ROOM_BYTES))  # goes back at once, in one piece

    def arena(self, lifetimes: Iterable[Lifetime]) -> Arena:
        """Memory for tensors whose lifetimes are known, planned so that it is as little as possible.

        Raises:
            OutOfMemoryError
        """
        device = self._device
        alignment = self._backend.capabilities.offset_alignment
        largest = min(device.info.limits.allocation_size, device.info.limits.storage_buffer_range)
        made = plan(lifetimes, max(alignment, GRAIN), largest, offsets=alignment > 0)
        return Arena(made, [device.allocate(nbytes, "arena") for nbytes in made.buffers])

    def joins(self, storage: Storage) -> bool:
        """Whether a dispatch may bind a storage with what lies around it: memory of this stream alone."""
        allocation = storage.allocation
        return (
            allocation is not None
            and allocation.stream_pool is not None
            and allocation.stream_pool.stream is self._backend.stream
        )

    def binds(self, *storages: Storage) -> bool:
        """Whether a dispatch can take storages whole."""
        limit = self._device.info.limits.storage_buffer_range
        return all(storage.nbytes <= limit for storage in storages)

    def on_host(self, nbytes: int, tag: str) -> Storage:
        """Memory of the host.

        Raises:
            OutOfMemoryError
        """
        device = self._device
        if nbytes <= KEPT_BYTES and device.keeps_plans and recorder.active is None:
            storage = device.pool.reuse(nbytes, tag)
            if storage is not None:
                return storage
        return self._tracked(self._backend.allocate(nbytes or 1), nbytes, tag)

    def adopt(self, array: npt.NDArray[Any], tag: str = "") -> Storage:
        """On the CPU, use a contiguous array's own memory as a storage, without a copy."""
        storage = self._tracked(CpuBuffer(bytes_of(array)), array.nbytes, tag)
        if listeners.active:
            for listener in listeners.here():
                listener.uploaded(self._device, storage, array)
        return storage

    def _tracked(self, buffer: Buffer, nbytes: int, tag: str) -> Storage:
        """Memory of the host, which goes back by itself."""
        device = self._device
        if device.simulated is not None:
            used, memory = device.pool.stats.allocated, device.info.memory
            if used + nbytes > memory:
                raise OutOfMemoryError(
                    f"[{tag or 'allocate'}] {nbytes} bytes do not fit on {device.name}: {used} of {memory} "
                    "are in use; use a smaller batch, or free tensors"
                )
        if recorder.active is not None:
            recorder.active.allocation(device.name, nbytes, "driver")
        return device.pool.adopt(Span(buffer, 0, buffer.nbytes), nbytes, tag)
