"""A device as tensors know it: a memory pool, compiled programs, and commands in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dl4all.allocator.pool import Pool
from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError, ShaderError
from dl4all.runtime import registry, spirv
from dl4all.runtime.backend import Backend, Bytes, Dispatch, Grid, Program
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.profiler import recorder
from dl4all.scheduler.prediction import rates


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
        self.pool = Pool(backend, self.synchronize, name)

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def allocate(self, nbytes: int) -> Storage:
        """Memory with undefined contents, given back when the storage is garbage.

        Raises:
            OutOfMemoryError
        """
        # A device has no buffers of size 0; an empty tensor holds the smallest one.
        return Storage(self.pool.allocate(max(nbytes, 1)), nbytes, self.pool)

    def launch(self, launch: Launch, *storages: Storage) -> None:
        """Run a shader with `storages` bound in order.

        Raises:
            ArgumentError: an operand is larger than the device can bind, or the grid too large.
            ShaderError: the shader's interface is not what the launch says.
        """
        with self._lock:
            program = self._program(launch, len(storages))
            limit = self.info.limits.storage_buffer_range
            nbytes = 0
            for storage in storages:
                nbytes += storage.nbytes
                if storage.nbytes > limit:
                    raise ArgumentError(
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
                active = recorder.active
                if active is None:
                    self._stream.dispatch(command)
                else:
                    nbytes = sum(storage.nbytes for storage in set(storages))
                    ran = active.kernel(self.name, launch.shader, nbytes, storages[-1])
                    self._stream.dispatch(command, ran)

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
        storage = self.allocate(array.nbytes)
        if array.nbytes:
            with self._lock:
                data = _bytes_of(np.ascontiguousarray(array))
                active = recorder.active
                if active is None:
                    self._stream.upload(storage.span, data)
                else:
                    with self._recorded(active, "upload", array.nbytes):
                        self._stream.upload(storage.span, data)
        return storage

    def download(self, storage: Storage, out: npt.NDArray[Any]) -> None:
        """Copy the start of `storage` into the contiguous host array `out`, when it is computed."""
        if out.nbytes:
            with self._lock:
                active = recorder.active
                if active is None:
                    self._stream.download(storage.span, _bytes_of(out))
                else:
                    with self._recorded(active, "download", out.nbytes):
                        self._stream.download(storage.span, _bytes_of(out))

    @contextlib.contextmanager
    def _recorded(
        self, active: recorder.Recorder, kind: Literal["upload", "download"], nbytes: int
    ) -> Iterator[None]:
        """Wait before a copy and after it, so that the seconds recorded are its own."""
        self._stream.synchronize()
        with active.transfer(kind, self.name, nbytes):
            yield
            self._stream.synchronize()

    def adopt(self, array: npt.NDArray[Any]) -> Storage:
        """On the CPU, use a contiguous array's own memory as a storage, without a copy."""
        return Storage(CpuBuffer(_bytes_of(array)), array.nbytes, None)

    def synchronize(self) -> None:
        """Wait until everything that was asked of this device is done."""
        with self._lock:
            self._stream.synchronize()


def _bytes_of(array: npt.NDArray[Any]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


_devices: dict[str, Device] = {}
_devices_lock = threading.Lock()


def device(name: str | Device = "auto") -> Device:
    """The device of that name, opened at the first call.

    Args:
        name: ``"auto"``, ``"gpu"``, ``"cpu"``, ``"vulkan:0"``, ``"kompute:0"``, ... or a device,
            which is returned as it is. ``dl4all devices`` lists what is here.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: a driver or library is missing; the message says how to get it.
    """
    if isinstance(name, Device):
        return name
    canonical = registry.resolve(name)
    with _devices_lock:
        if canonical not in _devices:
            _devices[canonical] = Device(canonical, registry.open_device(canonical))
        return _devices[canonical]


def synchronize(target: str | Device | None = None) -> None:
    """Wait until everything that was asked of a device, or of all opened ones, is done."""
    for opened in list(_devices.values()) if target is None else [device(target)]:
        opened.synchronize()
