"""A device as tensors know it: a memory pool, compiled programs, and commands in order."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all import config
from dl4all.allocator.allocation import aligned
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.guard import GUARD, check_guard, set_guard
from dl4all.allocator.host_memory import KEPT_BYTES
from dl4all.allocator.pinned import HostView, pinned_span
from dl4all.allocator.planner import Arena, Lifetime, plan
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.best_fit import GRAIN
from dl4all.allocator.strategies.by_size import choose
from dl4all.errors import OutOfMemoryError, PipelineError, TooLargeError
from dl4all.runtime import fork
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
    Grid,
    Program,
    Recording,
    Span,
    Stream,
)
from dl4all.runtime.simulated.backend import SimulatedBackend
from dl4all.scheduler import listeners
from dl4all.scheduler.cost.cost_model import rates
from dl4all.scheduler.device import link
from dl4all.scheduler.device.download import Download, arrived
from dl4all.scheduler.device.name import NamedDevice
from dl4all.scheduler.device.plan_table import PlanTable
from dl4all.scheduler.device.programs import Launch, Programs
from dl4all.scheduler.device.transfer_streams import TransferStreams
from dl4all.scheduler.device.transfers import Transfers, bytes_of
from dl4all.scheduler.index_errors import IndexErrors
from dl4all.scheduler.monitor import op_listeners, profile_events
from dl4all.scheduler.monitor.counters import Counters, devices
from dl4all.scheduler.streams.task import Task

SLAB_BYTES = 1 << 16  # added to the room for many tensors: small ones lie in a slab
MAX_ROOM_BYTES = 64 << 20  # room that is made at once: no block of the pool is larger


class Device(NamedDevice):
    """A device that tensors can live on, opened by its name at the first call; ``dl.device`` is this class.

    Args:
        name: ``"auto"``, ``"gpu"``, ``"cpu"``, ``"vulkan:0"``, ``"kompute:0"``, ... or a device,
            which is returned as it is. ``dl4all devices`` lists what is here. ``"auto"`` is the device of
            the ``with`` block that this thread is in, that of :func:`set_default_device`, or the best.
        index: the number, after a name without one: ``dl.device("vulkan", 0)``.
        type: the name without a number, as PyTorch calls it.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: a driver or library is missing; the message says how to get it.
        ForkError: the device is not the CPU, and the process was forked from one that had opened such a
            device (docs/processes.md).

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     x = dl.zeros(2)
        >>> x.device, x.device == "cpu", x.device.type
        (device('cpu'), True, 'cpu')
    """

    @classmethod
    def of_backend(cls, name: str, backend: Backend) -> Device:
        """A device with a pool of memory, programs and commands of its own."""
        device: Device = object.__new__(cls)
        device._set_up(name, backend)
        return device

    def _set_up(self, name: str, backend: Backend) -> None:
        self.name = name
        self.info: DeviceInfo = backend.info
        self.features = backend.features
        self.is_host = not backend.capabilities.programs  # tensors lie in host memory, and NumPy computes
        self.simulated = backend if isinstance(backend, SimulatedBackend) else None
        self._backend = backend
        self._stream = backend.stream
        self._lock = fork.rlock()  # one recorder at a time; garbage collection may come back in
        self._rates = rates(name, backend.info)
        self._programs = Programs(backend)
        self.tables: dict[str, Any] = {}  # what kernels look up, made once by those who need it
        self.counters = Counters()
        op_listeners.show_regions()
        self.index_errors = IndexErrors(backend)
        self._debug = config.memory_debug() and backend.capabilities.data
        self.plannable = not self.is_host and not self._debug  # launches may be repeated without a look
        self.keeps_plans = self.plannable or (self.is_host and self.simulated is None)
        alignment, forced = backend.capabilities.offset_alignment, config.allocator_setting()
        # Of spans over several storages; 0 where each is bound by itself, as each guard is looked at.
        self.alignment = 0 if self.is_host or self._debug else alignment
        self.pool = Allocator(
            backend,
            lambda driver: choose(driver, alignment, forced),
            self._finish,
            self._event_of,
            self._stream,
            name=name,
            guard=GUARD if self._debug else 0,
        )
        self._transfers = Transfers(name, backend, self.pool, self._lock, guarded=self._debug)
        self.replays = backend.capabilities.replay  # recordings cost less than their commands one by one
        self.asynchronous = backend.capabilities.asynchronous  # copies may run beside commands
        self._beside = TransferStreams(name, backend, self.pool, self._lock)
        self.pool.caches.append(self._beside.staging.clear)
        self._retired: deque[Recording] = deque()
        self._copies: deque[Task] = deque()  # to and from other devices, by threads
        devices.add(self)

    def allocate(self, nbytes: int, tag: str = "") -> Storage:
        """Memory with undefined contents, given back when the storage is garbage.

        `tag` says what it is for: the name of an op.

        Raises:
            OutOfMemoryError
        """
        following = listeners.here() if listeners.active else ()
        for listener in following:
            instead = listener.allocating(self, nbytes, tag)
            if instead is not None:
                return instead
        storage = self._allocate_on_host(nbytes, tag) if self.is_host else self.pool.storage(nbytes, tag)
        if self._debug and not self.is_host:
            with self._lock:
                set_guard(self._stream, storage)
        for listener in following:
            listener.allocated(self, storage, tag)
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

    def _allocate_on_host(self, nbytes: int, tag: str) -> Storage:
        if nbytes <= KEPT_BYTES and self.keeps_plans and recorder.active is None:
            storage = self.pool.reuse(nbytes, tag)
            if storage is not None:
                return storage
        return self._track_host(self._backend.allocate(nbytes or 1), nbytes, tag)

    def _track_host(self, buffer: Buffer, nbytes: int, tag: str) -> Storage:
        """Memory of the host, which goes back by itself."""
        if self.simulated is not None:
            used, memory = self.pool.stats.allocated, self.info.memory
            if used + nbytes > memory:
                raise OutOfMemoryError(
                    f"[{tag or 'allocate'}] {nbytes} bytes do not fit on {self.name}: {used} of {memory} are "
                    "in use; use a smaller batch, or free tensors"
                )
        if recorder.active is not None:
            recorder.active.allocation(self.name, nbytes, "driver")
        return self.pool.adopt(Span(buffer, 0, buffer.nbytes), nbytes, tag)

    def locks_on(self, backend: Backend) -> tuple[threading.RLock, ...]:
        """The locks under which threads use a backend by this device, in the order they ask for them."""
        return (self.pool.lock, self._lock, *self._beside.locks()) if self._backend is backend else ()

    def record_event(self) -> Event:
        """The point that the device's work has reached: what was asked of it so far."""
        return self._event_of(self._stream)

    def _event_of(self, stream: Stream) -> Event:
        with self._beside.lock_of(stream):
            return stream.record_event()

    def launch(self, launch: Launch, *storages: Storage) -> None:
        """Run a shader with `storages` bound in order.

        Raises:
            TooLargeError: an operand is larger than the device can bind, or the grid too large.
            ShaderError: the shader's interface is not what the launch says.
            PipelineError: the driver does not build the shader, now or earlier.
        """
        for storage in storages:  # before the lock is taken: a thread that brings contents may need it
            if storage.pending is not None:
                storage.settle()
        with self._lock:
            command = self.prepare(launch, *storages)
            if storages and 0 not in launch.groups:
                following = listeners.here() if listeners.active else ()
                for listener in following:
                    if listener.launching(self, launch, command.program.writes, storages):
                        return
                self._transfers.device_busy = True
                self.counters.launches += 1
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
                for listener in following:
                    listener.launched(self, command, storages)
                if self._debug:
                    for storage in storages:
                        check_guard(self._stream, storage, launch.shader.name)

    @property
    def plans(self) -> PlanTable:
        """The launches of earlier ops, for calls like those (:mod:`dl4all.ops.core.kernels.launch_plan`)."""
        return self._programs.plans

    def launch_again(
        self, program: Program, groups: Grid, push: bytes, seconds: float, storages: Sequence[Storage]
    ) -> None:
        """Run what :meth:`prepare` checked before, with storages of the same sizes.

        Only for devices that are ``plannable``, and where nobody listens to the thread.
        """
        for storage in storages:
            if storage.pending:
                storage.settle()
        with self._lock:
            self._transfers.device_busy = True
            self.counters.launches += 1
            self._stream.dispatch(
                Dispatch(program, [storage.span for storage in storages], groups, push, seconds)
            )

    def upload(self, array: npt.NDArray[Any]) -> Storage:
        """Copy a host array to the device; the array may be changed at once afterwards."""
        listeners.unplanned()
        self.counters.uploaded += array.nbytes
        pinned = pinned_span(array, self._backend) if self._transfers.staged else None
        if pinned is not None and pinned.nbytes and not listeners.followed():
            return self._transfers.upload_pinned(pinned)
        storage = self.allocate(array.nbytes, "upload")
        if array.nbytes:
            with self._lock:
                self._transfers.upload(storage, array)
        for listener in listeners.here():
            listener.uploaded(self, storage, array)
        return storage

    def prepare(self, launch: Launch, *storages: Storage) -> Dispatch:
        """The command of a launch, checked, for a recording; it does not wait for the storages' contents.

        Raises:
            TooLargeError, ShaderError, PipelineError: as :meth:`launch`.
        """
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
            raise TooLargeError(
                f"[{launch.shader.path}] {launch.groups} workgroups are more than {self.name} "
                f"can start at once ({most}); use a smaller batch, or the CPU"
            )
        spans = [storage.span for storage in storages]
        seconds = launch.flops * self._rates.per_flop + nbytes * self._rates.per_byte
        return Dispatch(program, spans, launch.groups, launch.push, seconds)

    def record(self, commands: Sequence[Dispatch | Fill], changing: Iterable[int] = ()) -> Recording:
        """Prepare commands for :meth:`replay`.

        Args:
            commands: from :meth:`prepare`, or fills.
            changing: the numbers of those of which replays may change spans and push constants.
        """
        with self._lock:
            if self._retired:
                self._stream.synchronize()  # they may still run
                while self._retired:
                    self._retired.popleft().free()
            return self._backend.record(commands, frozenset(changing))

    def retire(self, recording: Recording) -> None:
        """Release a recording that is not replayed any more, before the next one is made.

        Garbage collection may call this at any point of another call: it takes no lock.
        """
        self._retired.append(recording)

    def replay(self, recording: Recording, changes: Mapping[int, Dispatch]) -> None:
        """Run what was recorded, with some dispatches replaced, as one submission where the backend can."""
        listeners.unplanned()
        with self._lock:
            self._transfers.device_busy = True
            self.counters.launches += len(recording.commands)
            self._stream.replay(recording, changes)

    def run_commands(self, commands: Iterable[Dispatch | Fill]) -> None:
        """Run commands one by one, where nothing is recorded."""
        listeners.unplanned()
        with self._lock:
            self._transfers.device_busy = True
            for command in commands:
                if isinstance(command, Fill):
                    self._stream.fill(command)
                else:
                    self.counters.launches += 1
                    self._stream.dispatch(command)

    def download(self, storage: Storage, out: npt.NDArray[Any], start: int = 0) -> None:
        """Copy what `storage` holds from byte `start` on into the contiguous array `out`, when computed.

        Raises:
            ArgumentError: an index that an earlier op took was out of range.
        """
        listeners.refuse("reads elements of a tensor on the host")
        self.counters.downloaded += out.nbytes
        if out.nbytes:
            storage.settle()
            count = self.index_errors.count
            with self._lock:
                self._transfers.download(Span(storage.buffer, storage.span.offset + start, out.nbytes), out)
            self.index_errors.look(count)

    # Without a wait

    def upload_later(self, array: npt.NDArray[Any]) -> Storage:
        """Copy a host array to the device beside what it computes; the array may be changed at once.

        Commands that use the storage wait for the copy, on the device; errors of the copy are raised there.

        Raises:
            OutOfMemoryError
        """
        listeners.unplanned()
        if listeners.followed() and not self.is_host:
            return self.upload(array)
        storage = self.reserve(array.nbytes)
        storage.pending = self.deliver(storage, array)
        if self.simulated is not None:
            link.receive_later(self.simulated, storage)
        return storage

    def reserve(self, nbytes: int, tag: str = "upload") -> Storage:
        """Memory with undefined contents, for :meth:`deliver`: no command of the device may still use it.

        Raises:
            OutOfMemoryError
        """
        if not self.asynchronous or not nbytes:
            return self.allocate(nbytes, tag)
        storage = self._beside.reserve(nbytes, tag)
        if self._debug:
            with self._lock:
                set_guard(self._stream, storage)
        return storage

    def host_memory(self, storage: Storage) -> Bytes | None:
        """Memory from :meth:`reserve` itself, to write to; None where the host does not see it."""
        if not self.is_host and not self.asynchronous:
            return None  # its commands may use the memory
        mapped, offset = storage.buffer.mapped, storage.span.offset
        return None if mapped is None else mapped[offset : offset + storage.nbytes]

    def deliver(self, storage: Storage, array: npt.NDArray[Any]) -> Callable[[], None] | None:
        """Copy a host array to a storage of its size from :meth:`reserve`; it may be changed at once.

        Returns:
            For :attr:`Storage.pending`: lets the device's later commands wait for the copy; None when done.
        """
        memory = self.host_memory(storage)
        if memory is not None:
            memory.view(array.dtype).reshape(array.shape)[...] = array
        elif self.asynchronous and array.nbytes:
            return functools.partial(self._wait_for, self._beside.deliver(storage, array))
        elif array.nbytes:
            with self._lock:
                self._transfers.write(storage, array)
        return None

    def _wait_for(self, event: Event) -> None:
        with self._lock:
            self._stream.wait_event(event)
            self._transfers.device_busy = True

    def download_later(
        self, storage: Storage, nbytes: int, start: int = 0, *, beside: bool = False
    ) -> Download:
        """Bytes of a storage from `start` on, as the commands so far leave them; it does not wait for them.

        Args:
            storage: its contents. It may be written or freed at once.
            nbytes: how many.
            start: the first.
            beside: copy beside the commands that follow, which must not write the storage.

        Raises:
            OutOfMemoryError: there is no host memory for them.
            DeviceLostError
        """
        listeners.refuse("reads elements of a tensor on the host")
        storage.settle()
        if self.is_host:
            data = storage.buffer.data[start : start + nbytes]
            if self.simulated is None:
                return arrived(self.name, data.copy())
            kept = data.copy() if self.simulated.computes else data  # otherwise nothing is written there
            return Download(self.name, nbytes, link.send(self.simulated, nbytes), lambda: kept)
        if recorder.active is not None or not self.asynchronous or not nbytes:
            skew = start % 4  # backends copy from whole words on
            out = np.empty(skew + nbytes, np.uint8)
            self.download(storage, out, start - skew)
            return arrived(self.name, out[skew:])
        self._transfers.device_busy = True
        source = Span(storage.buffer, storage.span.offset + start, nbytes)
        coming = self._beside.download_beside(storage, source) if beside else self._beside.download(source)
        coming.look = functools.partial(self.index_errors.look, self.index_errors.count)
        return coming

    def note_copy(self, task: Task) -> None:
        """Let :meth:`synchronize` wait for a copy to or from another device."""
        with self._lock:
            while self._copies and self._copies[0].done():
                self._copies.popleft()
            self._copies.append(task)

    def write(self, storage: Storage, array: npt.NDArray[Any]) -> None:
        """Copy a host array over the start of a storage, when what uses that is done."""
        listeners.refuse("writes to a tensor from the host")
        self.counters.uploaded += array.nbytes
        if array.nbytes:
            storage.settle()
            with self._lock:
                self._transfers.write(storage, array)

    def pin(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of a host array in memory that the device copies from by itself."""
        with self._lock:
            return self._transfers.pin(array)

    def host_view(self, storage: Storage) -> Bytes | None:
        """The memory of a storage itself, where the host sees it, when everything has been computed."""
        listeners.refuse("shows a tensor's memory to the host")
        self.check()
        if storage.buffer.mapped is None:
            return None
        storage.settle()
        storage.shown = True
        self.synchronize()
        return HostView(storage.span, storage).bytes()[: storage.nbytes]

    def fill(self, storage: Storage, word: int, first: int = 0, count: int | None = None) -> None:
        """Fill a storage, or `count` of its words from the first on, with a 32-bit pattern."""
        listeners.unplanned()
        if storage.nbytes:
            storage.settle()
            words = -(-storage.nbytes // 4) - first if count is None else count
            nbytes = 4 * words
            for listener in listeners.here():
                if listener.filling(self, storage, word, first, words):
                    return
            with self._lock:
                self._stream.fill(Fill(Span(storage.buffer, storage.span.offset + 4 * first, nbytes), word))

    def adopt(self, array: npt.NDArray[Any], tag: str = "") -> Storage:
        """On the CPU, use a contiguous array's own memory as a storage, without a copy."""
        storage = self._track_host(CpuBuffer(bytes_of(array)), array.nbytes, tag)
        if listeners.active:
            for listener in listeners.here():
                listener.uploaded(self, storage, array)
        return storage

    def in_flight(self) -> bool | None:
        """Whether the device computes at this moment; None where its backend does not tell without waiting.

        Any thread may ask, and nothing waits for the answer.
        """
        if self.is_host:
            return self.counters.host_kernels != self.counters.host_finished
        ask = getattr(
            self._stream, "in_flight", None
        )  # of streams whose commands return before they have run
        return None if ask is None else bool(ask())

    def synchronize(self) -> None:
        """Wait until everything that was asked of this device is done, copies from and to others included.

        Raises:
            ArgumentError: an index that an op took was out of range.
        """
        if recorder.active is None or (self.is_host and self.simulated is None):
            self._synchronize()
            return
        with profile_events.wait_for_device(self):
            self._synchronize()

    def _synchronize(self) -> None:
        listeners.refuse("waits for a device")
        count = self.index_errors.count
        with self._lock:
            copies = tuple(self._copies)
        for task in copies:
            task.wait()
        with self._lock:
            while self._copies and self._copies[0].done():
                self._copies.popleft()
        if self.simulated is not None:
            self.simulated.synchronize()
        self._finish()
        self.index_errors.look(count, idle=True)

    def check(self) -> None:
        """
        Raises:
            ForkError: the device is of the parent of this process.
        """
        if isinstance(self.pool, fork.Refusal):
            raise fork.error(self.name)

    def leave_to_parent(self) -> None:
        """In a forked child: forget copies by the parent's threads, and refuse what needs a driver."""
        self._copies.clear()
        if self.is_host:
            self.pool.begin_child()
            return
        for part in ("_backend", "_beside", "_programs", "_stream", "_transfers", "pool"):
            setattr(self, part, fork.Refusal(self.name))

    def _finish(self) -> None:
        """Wait until no command of this device runs."""
        with self._lock:
            self._beside.synchronize()
            self._transfers.synchronize()
