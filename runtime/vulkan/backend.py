"""A Vulkan device, opened: memory, programs and one in-order stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import BackendMissingError, DeviceError, UnknownDeviceError
from dl4all.runtime.info import DeviceInfo
from dl4all.runtime.spirv import Module
from dl4all.runtime.vulkan.buffer import Kind, MemoryKind, VulkanBuffer
from dl4all.runtime.vulkan.discovery import PhysicalDevice, physical_devices
from dl4all.runtime.vulkan.instance import NO_DRIVER, api, check
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.stream import VulkanStream


class VulkanBackend:
    """Vulkan's physical device number `index`.

    On integrated and software devices buffers lie in memory that the host sees as well, and uploads
    and downloads are plain copies; elsewhere they go through staging buffers. ``zero_copy=False``
    forces staging.

    Raises:
        UnknownDeviceError: there is no such device.
        BackendMissingError: there is no Vulkan loader or driver.
    """

    def __init__(self, index: int, *, zero_copy: bool = True) -> None:
        found = {device.info.index: device for device in physical_devices()}
        if index not in found:
            raise UnknownDeviceError(f"[vulkan] no device {index}; there are {sorted(found)}")
        physical = found[index]
        self.info: DeviceInfo = physical.info
        has = {"int64": physical.int64, "subgroup_shuffle": self.info.subgroup_shuffle}
        self.features = frozenset(name for name, there in has.items() if there)
        self._device: Any = _create_device(physical)
        self.buffers: set[VulkanBuffer] = set()
        self.programs: set[VulkanProgram] = set()
        self.memory_kinds = _memory_kinds(physical, zero_copy)
        self.pipeline_cache = _create_pipeline_cache(self.device)
        self.stream = VulkanStream(self, physical.queue_family)

    @property
    def device(self) -> Any:
        """The VkDevice.

        Raises:
            DeviceError: it is closed.
        """
        if self._device is None:
            raise DeviceError(f"[vulkan] {self.info.hardware} is closed; what was on it is gone")
        return self._device

    def allocate(self, nbytes: int) -> VulkanBuffer:
        return VulkanBuffer(self, nbytes, "device")

    def program(self, module: Module, constants: Sequence[int]) -> VulkanProgram:
        return VulkanProgram(self, module, constants)

    def close(self) -> None:
        if self._device is None:
            return
        ffi, lib = api().ffi, api().lib
        self.stream.close()
        for buffer in list(self.buffers):
            buffer.free()
        for program in list(self.programs):
            program.free()
        lib.vkDestroyPipelineCache(self.device, self.pipeline_cache, ffi.NULL)
        lib.vkDestroyDevice(self.device, ffi.NULL)
        self._device = None


def find() -> tuple[DeviceInfo, ...]:
    """Every Vulkan device.

    Raises:
        BackendMissingError: there is no loader or no driver.
    """
    found = physical_devices()
    if not found:
        raise BackendMissingError(f"[vulkan] {NO_DRIVER}")
    return tuple(device.info for device in found)


def open(index: int) -> VulkanBackend:
    """Vulkan's device number `index`.

    Raises:
        DeviceError
    """
    return VulkanBackend(index)


def _create_device(physical: PhysicalDevice) -> Any:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    priority = ffi.new("float[]", [1.0])
    queue = ffi.new(
        "VkDeviceQueueCreateInfo*",
        {
            "sType": vulkan.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
            "queueFamilyIndex": physical.queue_family,
            "queueCount": 1,
            "pQueuePriorities": priority,
        },
    )
    enabled = ffi.new("VkPhysicalDeviceFeatures*", {"shaderInt64": physical.int64})
    create = ffi.new(
        "VkDeviceCreateInfo*",
        {
            "sType": vulkan.VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
            "pEnabledFeatures": enabled,
            "queueCreateInfoCount": 1,
            "pQueueCreateInfos": queue,
        },
    )
    device = ffi.new("VkDevice*")
    check(lib.vkCreateDevice(physical.handle, create, ffi.NULL, device), f"opening {physical.info.hardware}")
    return device[0]


def _create_pipeline_cache(device: Any) -> Any:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    create = ffi.new(
        "VkPipelineCacheCreateInfo*", {"sType": vulkan.VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO}
    )
    cache = ffi.new("VkPipelineCache*")
    check(lib.vkCreatePipelineCache(device, create, ffi.NULL, cache), "creating a pipeline cache")
    return cache[0]


def _with_flags(physical: PhysicalDevice, *names: str) -> list[int]:
    wanted = 0
    for name in names:
        wanted |= getattr(api(), f"VK_MEMORY_PROPERTY_{name}_BIT")
    return [i for i, flags in enumerate(physical.memory_types) if flags & wanted == wanted]


def _memory_kinds(physical: PhysicalDevice, zero_copy: bool) -> dict[Kind, MemoryKind]:
    """Memory types for each kind of buffer.

    Reading memory that the host does not cache is some twenty times slower than a copy by the
    device, so only cached memory is shared with the host.
    """
    cached = _with_flags(physical, "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED")
    visible = _with_flags(physical, "HOST_VISIBLE", "HOST_COHERENT")
    local = _with_flags(physical, "DEVICE_LOCAL")
    one_memory = physical.info.type in ("integrated", "software") and zero_copy
    shared = [i for i in local if i in cached] if one_memory else []
    hidden = [i for i in local if i not in visible]
    return {
        "device": MemoryKind(tuple(dict.fromkeys([*shared, *hidden, *local])), frozenset(shared)),
        "staging": MemoryKind(tuple(dict.fromkeys([*cached, *visible])), frozenset(visible)),
    }
