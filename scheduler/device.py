"""A device as tensors know it: a memory pool, compiled programs, and commands in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from dl4all import config
from dl4all.allocator.allocation import aligned
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.guard import GUARD, check_guard, set_guard
from dl4all.allocator.pinned import HostView, pinned_span
from dl4all.allocator.planner import Arena, Lifetime, plan
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.best_fit import GRAIN
from dl4all.allocator.strategies.by_size import choose
from dl4all.errors import ArgumentError, OutOfMemoryError, PipelineError, TooLargeError
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import (
    Backend,
    Buffer,
    Bytes,
    Dispatch,
    Event,
    Fill,
    Span,
    Stream,
)
from dl4all.scheduler.cost_model import rates
from dl4all.scheduler.programs import Launch, Programs
from dl4all.scheduler.transfers import Transfers, bytes_of

SLAB_BYTES = 1 << 16  # added to the room for many tensors: small ones lie in a slab
MAX_ROOM_BYTES = 64 << 20  # room that is made at once: no block of the pool is larger


class Device:
    """A device that tensors can live on, opened by :func:`dl4all.scheduler.current.device`.

    >>> import dl4all as dl
    >>> dl.device("cpu").info.type
    'cpu'
    """

    def __init__(self, name: str, backend: Backend) -> None:
        self.name = name
        self.info: DeviceInfo = backend.info
        self.features = backend.features
        self.is_host = name == "cpu"
        self._backend = backend
        self._stream = backend.stream
        self._lock = threading.RLock()  # one recorder at a time; garbage collection may come back in
        self._rates = rates(name, backend.info)
        self._programs = Programs(backend)
        self.tables: dict[str, Any] = {}  # what kernels look up, made once by those who need it
        self._debug = config.memory_debug() and backend.capabilities.data
        alignment, forced = backend.capabilities.offset_alignment, config.allocator_setting()
        # Of spans over several storages; 0 where each is bound by itself, as each guard is looked at.
        self.alignment = 0 if self.is_host or self._debug else alignment
        self.pool = Allocator(
            backend,
            lambda driver: choose(driver, alignment, forced),
            self.synchronize,
            self._event_of,
            self._stream,
            name=name,
            guard=GUARD if self._debug else 0,
        )
        self._transfers = Transfers(name, backend, self.pool, self._lock, guarded=self._debug)

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __enter__(self) -> Device:
        """In a ``with`` block, ``device="auto"`` means this device in this thread."""
        entered.stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        entered.stack.pop()

    def allocate(self, nbytes: int, tag: str = "") -> Storage:
        """Memory with undefined contents, given back when the storage is garbage.

        `tag` says what it is for: the name of an op.

        Raises:
            OutOfMemoryError
        """
        if self.is_host:
            return self._track_host(self._backend.allocate(nbytes or 1), nbytes, tag)
        # A device has no buffers of size 0; an empty tensor holds the smallest one.
        allocation = self.pool.allocate(nbytes or 1, tag)
        storage = Storage(allocation.span, nbytes, allocation, self.pool.release)
        if self._debug:
            with self._lock:
                set_guard(self._stream, storage)
        return storage

    def make_room(self, sizes: Iterable[int]) -> None:
        """Have storages of so many bytes, which are allocated next, lie side by side if they can.

        Kernels that work on many tensors at once (an optimizer's) bind fewer buffers then.
        """
        if self.alignment:
            nbytes = sum(aligned(size, max(self.alignment, GRAIN)) for size in sizes) + SLAB_BYTES
            with contextlib.suppress(OutOfMemoryError):
                self.allocate(min(nbytes, MAX_ROOM_BYTES))  # goes back at once, in one piece

    def arena(self, lifetimes: Iterable[Lifetime]) -> Arena:
        """Memory for tensors whose lifetimes are known, planned so that it is as little as possible.

        For the graph compiler, which is to come.

        Raises:
            OutOfMemoryError
        """
        alignment = self._backend.capabilities.offset_alignment
        largest = min(self.info.limits.allocation_size, self.info.limits.storage_buffer_range)
        made = plan(lifetimes, max(alignment, GRAIN), largest, offsets=alignment > 0)
        return Arena(made, [self.allocate(nbytes, "arena") for nbytes in made.buffers])

    def joins(self, storage: Storage) -> bool:
        """Whether a dispatch may bind a storage with what lies around it: memory of this stream alone."""
        allocation = storage.allocation
        return (
            allocation is not None
            and allocation.stream_pool is not None
            and allocation.stream_pool.stream is self._stream
        )

    def binds(self, *storages: Storage) -> bool:
        """Whether a dispatch can take storages whole."""
        limit = self.info.limits.storage_buffer_range
        return all(storage.nbytes <= limit for storage in storages)

    def _track_host(self, buffer: Buffer, nbytes: int, tag: str) -> Storage:
        """Memory of the host, which goes back by itself."""
        allocation = self.pool.adopt(nbytes, tag)
        if recorder.active is not None:
            recorder.active.allocation(self.name, nbytes, "driver")
        return Storage(Span(buffer, 0, buffer.nbytes), nbytes, allocation, self.pool.release)

    def _event_of(self, stream: Stream) -> Event:
        with self._lock:
            return stream.record_event()

    def launch(self, launch: Launch, *storages: Storage) -> None:
        """Run a shader with `storages` bound in order.

        Raises:
            TooLargeError: an operand is larger than the device can bind.
            ArgumentError: the grid is too large.
            ShaderError: the shader's interface is not what the launch says.
            PipelineError: the driver does not build the shader, now or earlier.
        """
        with self._lock:
            program = self._programs.find(launch, len(storages))
            limit = self.info.limits.storage_buffer_range
            nbytes = 0
            for storage in storages:
                nbytes += storage.nbytes
                if storage.nbytes > limit:
                    raise TooLargeError(
                        f"[{launch.shader.path}] an operand of {storage.nbytes} bytes is more than "
                        f"{self.name} can bind at once ({limit}); use a smaller batch, or the CPU"
                    )
            most = self.info.limits.workgroup_count
            if any(count > limit for count, limit in zip(launch.groups, most, strict=True)):
                raise ArgumentError(
                    f"[{launch.shader.path}] {launch.groups} workgroups are more than {self.name} "
                    f"can start at once ({most}); use a smaller batch, or the CPU"
                )
            if storages and 0 not in launch.groups:
                spans = [storage.span for storage in storages]
                seconds = launch.flops * self._rates.per_flop + nbytes * self._rates.per_byte
                command = Dispatch(program, spans, launch.groups, launch.push, seconds)
                self._transfers.device_busy = True
                active = recorder.active
                try:
                    if active is None:
                        self._stream.dispatch(command)
                    else:
                        nbytes = sum(storage.nbytes for storage in set(storages))
                        ran = active.kernel(self.name, launch.shader, nbytes, storages[-1])
                        self._stream.dispatch(command, ran)
                except PipelineError as error:  # of backends that build pipelines when they first run
                    self._programs.refuse(launch, error)
                    raise
                if self._debug:
                    for storage in storages:
                        check_guard(self._stream, storage, launch.shader.name)

    def upload(self, array: npt.NDArray[Any]) -> Storage:
        """Copy a host array to the device; the array may be changed at once afterwards."""
        pinned = pinned_span(array) if self._transfers.staged else None
        if pinned is not None and pinned.nbytes and recorder.active is None:
            return self._transfers.upload_pinned(pinned)
        storage = self.allocate(array.nbytes, "upload")
        if array.nbytes:
            with self._lock:
                self._transfers.upload(storage, array)
        return storage

    def download(self, storage: Storage, out: npt.NDArray[Any], start: int = 0) -> None:
        """Copy what `storage` holds from byte `start` on into the contiguous array `out`, when computed."""
        if out.nbytes:
            with self._lock:
                self._transfers.download(Span(storage.buffer, storage.span.offset + start, out.nbytes), out)

    def write(self, storage: Storage, array: npt.NDArray[Any]) -> None:
        """Copy a host array over the start of a storage, when what uses that is done."""
        if array.nbytes:
            with self._lock:
                self._transfers.write(storage, array)

    def pin(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of a host array in memory that the device copies from by itself."""
        with self._lock:
            return self._transfers.pin(array)

    def host_view(self, storage: Storage) -> Bytes | None:
        """The memory of a storage itself, where the host sees it, when everything has been computed."""
        if storage.buffer.mapped is None:
            return None
        storage.shown = True
        self.synchronize()
        return HostView(storage.span, storage).bytes()[: storage.nbytes]

    def fill(self, storage: Storage, word: int) -> None:
        """Fill a storage with a 32-bit pattern."""
        if storage.nbytes:
            with self._lock:
                self._stream.fill(
                    Fill(Span(storage.buffer, storage.span.offset, -(-storage.nbytes // 4) * 4), word)
                )

    def adopt(self, array: npt.NDArray[Any], tag: str = "") -> Storage:
        """On the CPU, use a contiguous array's own memory as a storage, without a copy."""
        return self._track_host(CpuBuffer(bytes_of(array)), array.nbytes, tag)

    def synchronize(self) -> None:
        """Wait until everything that was asked of this device is done."""
        with self._lock:
            self._transfers.synchronize()


class _Entered(threading.local):
    """The devices of the ``with`` blocks that a thread is in."""

    def __init__(self) -> None:
        self.stack: list[Device] = []


entered = _Entered()
