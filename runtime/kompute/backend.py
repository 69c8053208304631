"""A Vulkan device, opened through Kompute."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dl4all.errors import DeviceError, UnknownDeviceError
from dl4all.runtime import fork
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.kompute.bound_program import KomputeLaunches
from dl4all.runtime.kompute.buffer import KomputeBuffer
from dl4all.runtime.kompute.copies import Copies
from dl4all.runtime.kompute.library import installed, kp, manager, typed
from dl4all.runtime.kompute.program import KomputeProgram
from dl4all.runtime.kompute.recording import KomputeRecording
from dl4all.runtime.kompute.stream import KomputeStream
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.spirv import SpirvModule
from dl4all.runtime.unowned import unowned
from dl4all.runtime.vulkan import backend as vulkan
from dl4all.runtime.vulkan import features
from dl4all.runtime.vulkan.discovery import check_memory, physical_devices

# Kompute enables no feature; these are properties of a device, which need not be enabled.
FEATURES = frozenset({"subgroup_shuffle", "subgroup_arithmetic"})


class KomputeBackend:
    """Vulkan's physical device number `index`, through ``kp``.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: ``kp``, the Vulkan loader or a driver is missing.
        ForkError: the parent of this process had opened a device.
    """

    capabilities = Capabilities(offset_alignment=0, replay=True)

    def __init__(self, index: int) -> None:
        fork.open_driver(f"kompute:{index}")
        found = {device.info.index: device for device in physical_devices()}
        if index not in found:
            raise UnknownDeviceError(f"[kompute] no device {index}; there are {sorted(found)}")
        physical = found[index]
        check_memory(physical)
        self.info: DeviceInfo = physical.info
        self.features = FEATURES & features.supported(
            physical.handle, physical.api_version, physical.extensions
        )
        self._manager: Any = manager(index)
        _alive.add(self)
        # Around whatever uses ``kp`` and what is kept for it: a thread must not run what another lets go. It
        # is entered again when garbage collection frees something in the middle.
        self.lock = fork.rlock()
        self.buffers: set[KomputeBuffer] = set()
        self.programs: set[KomputeProgram] = set()
        self.recordings: set[KomputeRecording] = set()
        self.streams: set[KomputeStream] = set()
        self.launches = KomputeLaunches(self)
        self.copies = Copies(self)
        self.stream = self.new_stream()

    @property
    def allocated(self) -> int:
        """Bytes of device memory that buffers take."""
        return sum(buffer.nbytes for buffer in tuple(self.buffers))

    @property
    def allocations(self) -> int:
        """Calls of vkAllocateMemory that were not taken back."""
        return sum(buffer.allocations for buffer in tuple(self.buffers))

    def unowned(self) -> list[KomputeBuffer]:
        """Buffers that nobody has: what an exception cut off on the way to who asked for them."""
        return unowned(self.buffers)

    @property
    def manager(self) -> Any:
        """The ``kp.Manager``."""
        self.check_open()
        return self._manager

    def check_open(self) -> None:
        """Raise DeviceError if the device is closed, ForkError if it is the parent's."""
        if self._manager is None:
            fork.check(f"kompute:{self.info.index}")
            raise DeviceError(f"[kompute] {self.info.hardware} is closed; what was on it is gone")

    def check_buffer(self, buffer: Any) -> None:
        """Raise DeviceError if it is no buffer of this device, or not any more."""
        if buffer not in self.buffers:
            raise DeviceError("[kompute] the buffer was freed, or belongs to another device")

    def sequence(self, operations: Iterable[Any]) -> Any:
        """A sequence with operations in it, ready for ``eval()`` any number of times.

        Sequences are never recorded again: Kompute's command pools do not allow a reset.
        """
        try:
            sequence = self.manager.sequence()
            for operation in operations:
                sequence.record(operation)
        except RuntimeError as error:
            raise typed(error, "recording") from None
        return sequence

    def new_stream(self) -> KomputeStream:
        self.check_open()
        return KomputeStream(self)

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> KomputeBuffer:
        with self.lock:
            self.check_open()
            return KomputeBuffer(self, nbytes, kind)

    def memory(self) -> Memory:
        """The memory that this process has not taken itself: Kompute cannot ask the driver."""
        self.check_open()
        return Memory(self.info.memory - self.allocated, self.info.memory)

    def program(self, module: SpirvModule, constants: Sequence[int]) -> KomputeProgram:
        with self.lock:
            self.check_open()
            return KomputeProgram(self, module, constants)

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> KomputeRecording:
        with self.lock:
            self.check_open()
            return KomputeRecording(self, commands, changing)

    def close(self) -> None:
        with self.lock:
            if self._manager is None:
                return
            for recording in tuple(self.recordings):
                recording.free()
            self.launches.clear()
            for buffer in tuple(self.buffers):
                buffer.free()
            self.programs.clear()
            self.streams.clear()
            self._manager.destroy()
            self._manager = None

    def leave_to_parent(self) -> None:
        """In a forked child: refuse everything, and give nothing back."""
        for owned in (self, self._manager):
            fork.keep_for_ever(owned)
        self._manager = None
        self.streams.clear()


_alive: weakref.WeakSet[KomputeBackend] = weakref.WeakSet()


def _forked() -> None:
    for backend in list(_alive):
        backend.leave_to_parent()


fork.in_child(_forked)


def find() -> tuple[DeviceInfo, ...]:
    """Every Vulkan device, if ``kp`` is installed.

    Raises:
        BackendMissingError: it is not, or there is no Vulkan loader or driver.
    """
    if not installed():
        kp()  # says what is missing
    return vulkan.find()


def open(index: int) -> KomputeBackend:
    """Vulkan's device number `index`, through ``kp``.

    Raises:
        DeviceError
    """
    return KomputeBackend(index)
