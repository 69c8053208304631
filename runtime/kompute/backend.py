"""A Vulkan device, opened through Kompute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import DeviceError, UnknownDeviceError
from dl4all.runtime.backend import check_interface
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.kompute.buffer import KomputeBuffer
from dl4all.runtime.kompute.library import installed, kp, manager
from dl4all.runtime.kompute.program import KomputeProgram
from dl4all.runtime.kompute.stream import KomputeStream
from dl4all.runtime.spirv import Module
from dl4all.runtime.vulkan import backend as vulkan
from dl4all.runtime.vulkan.discovery import physical_devices


class KomputeBackend:
    """Vulkan's physical device number `index`, through ``kp``.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: ``kp``, the Vulkan loader or a driver is missing.
    """

    def __init__(self, index: int) -> None:
        found = {device.info.index: device.info for device in physical_devices()}
        if index not in found:
            raise UnknownDeviceError(f"[kompute] no device {index}; there are {sorted(found)}")
        self.info: DeviceInfo = found[index]
        # Kompute enables nothing; shuffling is a property of the device and need not be enabled.
        self.features = frozenset({"subgroup_shuffle"} if self.info.subgroup_shuffle else ())
        self._manager: Any = manager(index)
        self.buffers: set[KomputeBuffer] = set()
        self.allocated = 0
        self.stream = KomputeStream(self)

    @property
    def manager(self) -> Any:
        """The ``kp.Manager``."""
        self.check_open()
        return self._manager

    def check_open(self) -> None:
        """Raise DeviceError if the device is closed."""
        if self._manager is None:
            raise DeviceError(f"[kompute] {self.info.hardware} is closed; what was on it is gone")

    def record(self, operation: Any) -> Any:
        """A sequence of its own with one operation in it, ready for ``eval()`` any number of times.

        Sequences are never recorded again: Kompute's command pools do not allow a reset.
        """
        sequence = self.manager.sequence()
        sequence.record(operation)
        return sequence

    def allocate(self, nbytes: int) -> KomputeBuffer:
        return KomputeBuffer(self, nbytes)

    def program(self, module: Module, constants: Sequence[int]) -> KomputeProgram:
        check_interface(module, constants, self.info.limits, self.features)
        return KomputeProgram.create(module, constants)

    def close(self) -> None:
        if self._manager is None:
            return
        self.stream.close()
        for buffer in list(self.buffers):
            buffer.free()
        self._manager.destroy()
        self._manager = None


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
