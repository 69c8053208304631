"""A device as tensors know it: a memory pool, compiled programs, and commands in order."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dl4all import config
from dl4all.allocator.allocation import aligned
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.guard import GUARD, check_guard, set_guard
from dl4all.allocator.pinned import HostView, pinned_span
from dl4all.allocator.planner import Arena, Lifetime, plan
from dl4all.allocator.staging import CHUNK, Ring
from dl4all.allocator.storage import Storage
from dl4all.allocator.strategies.best_fit import GRAIN
from dl4all.allocator.strategies.by_size import choose
from dl4all.errors import ArgumentError, OutOfMemoryError, ShaderError, TooLargeError
from dl4all.runtime import registry, spirv
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import (
    Backend,
    Buffer,
    Bytes,
    Copy,
    Dispatch,
    Event,
    Fill,
    Grid,
    Program,
    Span,
    Stream,
)
from dl4all.scheduler.cost_model import rates

FOR_SLABS = 1 << 16  # bytes, of the small ones among many
ROOM = 64 << 20  # bytes that are made room for at once: no block of the pool is larger


@dataclass(frozen=True)
class Launch:
    """One dispatch: which shader, over how many workgroups, with which constants.

    ``push`` fills the push constants; ``constants`` are the values of spec ids 0, 1, 2, ...
    ``flops`` helps to predict how long it takes, where that is not the time to read and write its operands.
    """

    shader: spirv.Shader
    groups: Grid
    push: bytes = b""
    constants: tuple[int, ...] = ()
    flops: int = 0


class Device:
    """A device that tensors can live on, made by :func:`device`.

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
        self._programs: dict[tuple[spirv.Shader, tuple[int, ...]], Program] = {}
        self.tables: dict[str, Any] = {}  # what kernels look up, made once by those who need it
        self._ring: Ring | None = None  # made when something is first staged
        self._transfers: Stream | None = None  # of pinned memory, likewise
        self._unpinned: deque[Buffer] = deque()
        self._staged = False  # whether uploads are known to need host memory in between
        self._busy = False  # since it was last waited for
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

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __enter__(self) -> Device:
        """In a ``with`` block, ``device="auto"`` means this device in this thread."""
        _entered.stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered.stack.pop()

    def allocate(self, nbytes: int, tag: str = "") -> Storage:
        """Memory with undefined contents, given back when the storage is garbage.

        `tag` says what it is for: the name of an op.

        Raises:
            OutOfMemoryError
        """
        if self.is_host:
            return self._counted(self._backend.allocate(nbytes or 1), nbytes, tag)
        # A device has no buffers of size 0; an empty tensor holds the smallest one.
        piece = self.pool.allocate(nbytes or 1, tag)
        storage = Storage(piece.span, nbytes, piece, self.pool.release)
        if self._debug:
            with self._lock:
                set_guard(self._stream, storage)
        return storage

    def make_room(self, sizes: Iterable[int]) -> None:
        """Have storages of so many bytes, which are allocated next, lie side by side if they can.

        Kernels that work on many tensors at once (an optimizer's) bind fewer buffers then.
        """
        if self.alignment:
            nbytes = sum(aligned(size, max(self.alignment, GRAIN)) for size in sizes) + FOR_SLABS
            with contextlib.suppress(OutOfMemoryError):
                self.allocate(min(nbytes, ROOM))  # goes back at once, in one piece

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
        piece = storage.piece
        return piece is not None and piece.lane is not None and piece.lane.stream is self._stream

    def binds(self, *storages: Storage) -> bool:
        """Whether a dispatch can take storages whole."""
        limit = self.info.limits.storage_buffer_range
        return all(storage.nbytes <= limit for storage in storages)

    def _counted(self, buffer: Buffer, nbytes: int, tag: str) -> Storage:
        """Memory of the host, which goes back by itself."""
        piece = self.pool.adopt(nbytes, tag)
        if recorder.active is not None:
            recorder.active.allocation(self.name, nbytes, "driver")
        return Storage(Span(buffer, 0, buffer.nbytes), nbytes, piece, self.pool.release)

    def _event_of(self, stream: Stream) -> Event:
        with self._lock:
            return stream.record_event()

    def launch(self, launch: Launch, *storages: Storage) -> None:
        """Run a shader with `storages` bound in order.

        Raises:
            TooLargeError: an operand is larger than the device can bind.
            ArgumentError: the grid is too large.
            ShaderError: the shader's interface is not what the launch says.
        """
        with self._lock:
            program = self._program(launch, len(storages))
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
                self._busy = True
                active = recorder.active
                if active is None:
                    self._stream.dispatch(command)
                else:
                    nbytes = sum(storage.nbytes for storage in set(storages))
                    ran = active.kernel(self.name, launch.shader, nbytes, storages[-1])
                    self._stream.dispatch(command, ran)
                if self._debug:
                    for storage in storages:
                        check_guard(self._stream, storage, launch.shader.name)

    def _program(self, launch: Launch, bindings: int) -> Program:
        key = (launch.shader, launch.constants)
        program = self._programs.get(key)
        if program is None:
            module = spirv.load(launch.shader)
            program = self._programs[key] = self._backend.program(module, launch.constants)
        interface = program.module.interface
        if interface.push_bytes != len(launch.push) or len(interface.bindings) != bindings:
            raise ShaderError(
                f"[{launch.shader.path}] expects {len(interface.bindings)} buffers and "
                f"{interface.push_bytes} bytes of push constants, got {bindings} and {len(launch.push)}"
            )
        return program

    def upload(self, array: npt.NDArray[Any]) -> Storage:
        """Copy a host array to the device; the array may be changed at once afterwards."""
        pinned = pinned_span(array) if self._staged else None
        if pinned is not None and pinned.nbytes and recorder.active is None:
            return self._upload_pinned(pinned)
        storage = self.allocate(array.nbytes, "upload")
        if array.nbytes:
            with self._lock:
                data = _bytes_of(np.ascontiguousarray(array))
                active = recorder.active
                if active is None:
                    self._to_device(storage.span, data)
                else:
                    with self._recorded(active, "upload", array.nbytes):
                        self._to_device(storage.span, data)
                if self._debug:
                    set_guard(self._stream, storage)
        return storage

    def _to_device(self, target: Span, data: Bytes) -> None:
        """Directly where that needs no wait, else through memory that both sides see."""
        direct = target.buffer.mapped is not None and (not self._busy or data.size > CHUNK)
        if direct or not self._backend.capabilities.asynchronous:
            self._stream.upload(target, data)
            return
        self._staged = target.buffer.mapped is None
        self._staging().upload(target, data)

    def _staging(self) -> Ring:
        if self._ring is None:
            self._ring = Ring(self._backend, self._stream)
        return self._ring

    def _upload_pinned(self, source: Span) -> Storage:
        """Beside what the device computes: only the copy is waited for."""
        with self._lock:
            if self._transfers is None:
                self._transfers = self._backend.new_stream()
            transfers = self._transfers
        piece = self.pool.allocate(source.nbytes, "upload", transfers)
        storage = Storage(piece.span, source.nbytes, piece, self.pool.release)
        with self._lock:
            transfers.copy(Copy(source, Span(storage.buffer, storage.span.offset, source.nbytes)))
            if self._debug:
                set_guard(transfers, storage)
            event = transfers.record_event()
            self._stream.wait_event(event)
            storage.used_on(self._stream)
            self._busy = True
        event.synchronize()
        return storage

    def pin(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of a host array in memory that the device copies from by itself."""
        with self._lock:
            self._free_unpinned()
            buffer = self._backend.allocate(array.nbytes or 1, "host")
        view = HostView(Span(buffer, 0, buffer.nbytes), release=self._unpinned.append)
        pinned = view.bytes()[: array.nbytes].view(array.dtype).reshape(array.shape)
        pinned[...] = array
        return pinned

    def _free_unpinned(self) -> None:
        while self._unpinned:
            self._unpinned.popleft().free()  # nothing uses it: uploads wait for their copies

    def host_view(self, storage: Storage) -> Bytes | None:
        """The memory of a storage itself, where the host sees it, when everything has been computed."""
        if storage.buffer.mapped is None:
            return None
        storage.shown = True
        self.synchronize()
        return HostView(storage.span, storage).bytes()[: storage.nbytes]

    def download(self, storage: Storage, out: npt.NDArray[Any], start: int = 0) -> None:
        """Copy what `storage` holds from byte `start` on into the contiguous array `out`, when computed."""
        if out.nbytes:
            source = Span(storage.buffer, storage.span.offset + start, out.nbytes)
            with self._lock:
                active = recorder.active
                if active is None:
                    self._to_host(source, _bytes_of(out))
                else:
                    with self._recorded(active, "download", out.nbytes):
                        self._to_host(source, _bytes_of(out))

    def _to_host(self, source: Span, out: Bytes) -> None:
        if source.buffer.mapped is None and self._backend.capabilities.asynchronous:
            self._staging().download(source, out)
        else:
            self._stream.download(source, out)

    @contextlib.contextmanager
    def _recorded(
        self, active: recorder.Recorder, kind: Literal["upload", "download"], nbytes: int
    ) -> Iterator[None]:
        """Wait before a copy and after it, so that the seconds recorded are its own."""
        self._stream.synchronize()
        with active.transfer(kind, self.name, nbytes):
            yield
            self._stream.synchronize()

    def fill(self, storage: Storage, word: int) -> None:
        """Fill a storage with a 32-bit pattern."""
        if storage.nbytes:
            with self._lock:
                self._stream.fill(
                    Fill(Span(storage.buffer, storage.span.offset, -(-storage.nbytes // 4) * 4), word)
                )

    def write(self, storage: Storage, array: npt.NDArray[Any]) -> None:
        """Copy a host array over the start of a storage, when what uses that is done."""
        if array.nbytes:
            with self._lock:
                self._to_device(storage.span, _bytes_of(np.ascontiguousarray(array)))
                if self._debug:
                    set_guard(self._stream, storage)

    def adopt(self, array: npt.NDArray[Any], tag: str = "") -> Storage:
        """On the CPU, use a contiguous array's own memory as a storage, without a copy."""
        return self._counted(CpuBuffer(_bytes_of(array)), array.nbytes, tag)

    def synchronize(self) -> None:
        """Wait until everything that was asked of this device is done."""
        with self._lock:
            if self._transfers is not None:
                self._transfers.synchronize()
            self._stream.synchronize()
            self._busy = False
            self._free_unpinned()


def _bytes_of(array: npt.NDArray[Any]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


_devices: dict[str, Device] = {}
_devices_lock = threading.Lock()
_default: Device | None = None  # of all threads


class _Entered(threading.local):
    """The devices of the ``with`` blocks that a thread is in."""

    def __init__(self) -> None:
        self.stack: list[Device] = []


_entered = _Entered()


def set_default_device(name: str | Device | None) -> None:
    """Have ``device="auto"`` mean this device in all threads; None has the best one chosen again.

    A ``with`` block of another device goes before it, and it goes before DL4ALL_DEVICE.

    Raises:
        UnknownDeviceError, BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> dl.set_default_device("cpu")
        >>> dl.zeros(2).device
        device('cpu')
        >>> dl.set_default_device(None)
    """
    global _default
    _default = None if name is None else device(name)


def device(name: str | Device = "auto") -> Device:
    """The device of that name, opened at the first call.

    Args:
        name: ``"auto"``, ``"gpu"``, ``"cpu"``, ``"vulkan:0"``, ``"kompute:0"``, ... or a device,
            which is returned as it is. ``dl4all devices`` lists what is here. ``"auto"`` is the device of
            the ``with`` block that this thread is in, that of :func:`set_default_device`, or the best.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: a driver or library is missing; the message says how to get it.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     x = dl.zeros(2)
        >>> x.device
        device('cpu')
    """
    if isinstance(name, Device):
        return name
    if name == "auto":
        chosen = _entered.stack[-1] if _entered.stack else _default
        if chosen is not None:
            return chosen
    canonical = registry.resolve(name)
    with _devices_lock:
        if canonical not in _devices:
            _devices[canonical] = Device(canonical, registry.open_device(canonical))
        return _devices[canonical]


def opened() -> list[Device]:
    """The devices that :func:`device` has opened."""
    return list(_devices.values())


def synchronize(target: str | Device | None = None) -> None:
    """Wait until everything that was asked of a device, or of all opened ones, is done."""
    for opened in list(_devices.values()) if target is None else [device(target)]:
        opened.synchronize()
