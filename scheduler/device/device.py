"""A device as tensors know it: a memory pool, compiled programs, and commands in order."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from dl4all import config
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.guard import GUARD, check_guard, set_guard
from dl4all.allocator.pinned import HostView, pinned_span
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.by_size import choose
from dl4all.errors import PipelineError, TooLargeError
from dl4all.runtime import fork
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import (
    Backend,
    Bytes,
    Dispatch,
    Event,
    Fill,
    Grid,
    Program,
    Span,
    Stream,
)
from dl4all.runtime.simulated.backend import SimulatedBackend
from dl4all.scheduler import listeners
from dl4all.scheduler.cost.cost_model import rates
from dl4all.scheduler.device.copies import DeviceCopies
from dl4all.scheduler.device.memory import DeviceMemory
from dl4all.scheduler.device.name import NamedDevice
from dl4all.scheduler.device.programs import Launch, Programs
from dl4all.scheduler.device.recordings import Recordings
from dl4all.scheduler.device.transfer_streams import TransferStreams
from dl4all.scheduler.device.transfers import Transfers
from dl4all.scheduler.index_errors import IndexErrors
from dl4all.scheduler.monitor import op_listeners, profile_events
from dl4all.scheduler.monitor.counters import Counters, devices

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
        self.is_cpu = self.is_host and self.simulated is None  # what it computes is done when a call returns
        self._backend = backend
        self._stream = backend.stream
        self._lock = fork.rlock()  # one recorder at a time; garbage collection may come back in
        self._rates = rates(name, backend.info)
        self._programs = Programs(backend, before_compiling=self.record_event)
        self.plans = self._programs.plans
        """The launches of earlier ops, for calls like those (:mod:`dl4all.ops.core.kernels.launch_plan`)."""
        self.tables: dict[str, Any] = {}  # what kernels look up, made once by those who need it
        self.counters = Counters()
        op_listeners.show_regions()
        self.index_errors = IndexErrors(backend)
        self._debug = config.memory_debug() and backend.capabilities.data
        self.plannable = not self.is_host and not self._debug  # launches may be repeated without a look
        self.keeps_plans = self.plannable or self.is_cpu
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
        self.memory = DeviceMemory(self, backend)
        self.recordings = Recordings(backend, self._lock, self._transfers, self.counters)
        self.copies = DeviceCopies(
            self, backend, self._transfers, self._beside, self._lock, guarded=self._debug
        )
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
        storage = self.memory.on_host(nbytes, tag) if self.is_host else self.pool.storage(nbytes, tag)
        if self._debug and not self.is_host:
            with self._lock:
                set_guard(self._stream, storage)
        for listener in following:
            listener.allocated(self, storage, tag)
        return storage

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
        for listener in listeners.here() if listeners.active else ():
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

    def write(self, storage: Storage, array: npt.NDArray[Any]) -> None:
        """Copy a host array over the start of a storage, when what uses that is done."""
        listeners.refuse("writes to a tensor from the host")
        self.counters.uploaded += array.nbytes
        if array.nbytes:
            storage.settle()
            with self._lock:
                self._transfers.write(storage, array)

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
            for listener in listeners.here() if listeners.active else ():
                if listener.filling(self, storage, word, first, words):
                    return
            with self._lock:
                self._stream.fill(Fill(Span(storage.buffer, storage.span.offset + 4 * first, nbytes), word))

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
        with profile_events.wait_for_device(self):
            listeners.refuse("waits for a device")
            count = self.index_errors.count
            self.copies.wait()
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
        self.copies.forget()
        if self.is_host:
            self.pool.begin_child()
            return
        for part in (
            "_backend",
            "_beside",
            "_programs",
            "_stream",
            "_transfers",
            "copies",
            "memory",
            "pool",
            "recordings",
        ):
            setattr(self, part, fork.Refusal(self.name))

    def _finish(self) -> None:
        """Wait until no command of this device runs."""
        with self._lock:
            self._beside.synchronize()
            self._transfers.synchronize()
