"""Which Vulkan devices are here, and what they can do."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

from dl4all.config import least_limits
from dl4all.runtime.info import DeviceInfo, DeviceType, Limits, limited
from dl4all.runtime.vulkan.instance import api, check, instance, version

# PCI vendor ids, and Khronos's ids (0x1000x) for vendors without one.
VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10DE: "NVIDIA",
    0x13B5: "Arm",
    0x14E4: "Broadcom",
    0x1AE0: "Google",
    0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10005: "Mesa",
}


@dataclass(frozen=True)
class PhysicalDevice:
    """A VkPhysicalDevice with its facts, its memory types' property flags and what it can enable."""

    handle: Any
    info: DeviceInfo
    memory_types: tuple[int, ...]
    queue_family: int
    int64: bool  # 64-bit integers in shaders


_lock = threading.Lock()


def physical_devices() -> tuple[PhysicalDevice, ...]:
    """All devices with a compute queue, in the order the loader gives them.

    Raises:
        BackendMissingError: there is no loader or no driver.
    """
    with _lock:  # functools.cache alone lets two threads that come first make an instance each
        return _enumerate()


@functools.cache
def _enumerate() -> tuple[PhysicalDevice, ...]:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    count = ffi.new("uint32_t*")
    check(lib.vkEnumeratePhysicalDevices(instance(), count, ffi.NULL), "vkEnumeratePhysicalDevices")
    handles = ffi.new("VkPhysicalDevice[]", count[0])
    check(lib.vkEnumeratePhysicalDevices(instance(), count, handles), "vkEnumeratePhysicalDevices")
    found = []
    for index in range(count[0]):
        family = _compute_family(handles[index])
        if family is not None:
            found.append(_describe(handles[index], index, family))
    return tuple(found)


def _compute_family(handle: Any) -> int | None:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    count = ffi.new("uint32_t*")
    lib.vkGetPhysicalDeviceQueueFamilyProperties(handle, count, ffi.NULL)
    families = ffi.new("VkQueueFamilyProperties[]", count[0])
    lib.vkGetPhysicalDeviceQueueFamilyProperties(handle, count, families)
    for index in range(count[0]):
        if families[index].queueFlags & vulkan.VK_QUEUE_COMPUTE_BIT:
            return index
    return None


def _extensions(handle: Any) -> set[str]:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    count = ffi.new("uint32_t*")
    check(lib.vkEnumerateDeviceExtensionProperties(handle, ffi.NULL, count, ffi.NULL), "listing extensions")
    listed = ffi.new("VkExtensionProperties[]", count[0])
    check(lib.vkEnumerateDeviceExtensionProperties(handle, ffi.NULL, count, listed), "listing extensions")
    return {ffi.string(listed[i].extensionName).decode() for i in range(count[0])}


def _describe(handle: Any, index: int, family: int) -> PhysicalDevice:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    # A structure may only be chained where the device's version or extensions define it.
    basic = ffi.new("VkPhysicalDeviceProperties*")
    lib.vkGetPhysicalDeviceProperties(handle, basic)
    extensions = _extensions(handle)
    core_1_2 = basic.apiVersion >= (1 << 22) | (2 << 12)

    driver = ffi.new(
        "VkPhysicalDeviceDriverProperties*",
        {"sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES},
    )
    maintenance = ffi.new(
        "VkPhysicalDeviceMaintenance3Properties*",
        {
            "sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
            "pNext": driver if core_1_2 or "VK_KHR_driver_properties" in extensions else ffi.NULL,
        },
    )
    identity = ffi.new(
        "VkPhysicalDeviceIDProperties*",
        {"sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES, "pNext": maintenance},
    )
    subgroup = ffi.new(
        "VkPhysicalDeviceSubgroupProperties*",
        {"sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, "pNext": identity},
    )
    properties = ffi.new(
        "VkPhysicalDeviceProperties2*",
        {"sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, "pNext": subgroup},
    )
    small_types = ffi.new(
        "VkPhysicalDeviceShaderFloat16Int8Features*",
        {"sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES},
    )
    features = ffi.new(
        "VkPhysicalDeviceFeatures2*",
        {
            "sType": vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
            "pNext": small_types if core_1_2 or "VK_KHR_shader_float16_int8" in extensions else ffi.NULL,
        },
    )
    lib.vkGetPhysicalDeviceProperties2(handle, properties)
    lib.vkGetPhysicalDeviceFeatures2(handle, features)
    memory = ffi.new("VkPhysicalDeviceMemoryProperties*")
    lib.vkGetPhysicalDeviceMemoryProperties(handle, memory)

    facts = properties.properties
    limits = facts.limits
    local = [
        memory.memoryHeaps[i].size
        for i in range(memory.memoryHeapCount)
        if memory.memoryHeaps[i].flags & vulkan.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    ]
    info = DeviceInfo(
        index=index,
        hardware=ffi.string(facts.deviceName).decode(),
        uuid=bytes(identity.deviceUUID).hex(),
        type=_device_type(facts.deviceType),
        vendor=VENDORS.get(facts.vendorID, f"0x{facts.vendorID:04x}"),
        driver=ffi.string(driver.driverName).decode() or "unknown",
        driver_version=ffi.string(driver.driverInfo).decode() or str(facts.driverVersion),
        api_version=version(facts.apiVersion),
        memory=max(local, default=0),
        subgroup_size=subgroup.subgroupSize,
        subgroup_shuffle=bool(
            subgroup.supportedStages & vulkan.VK_SHADER_STAGE_COMPUTE_BIT
            and subgroup.supportedOperations & vulkan.VK_SUBGROUP_FEATURE_SHUFFLE_BIT
        ),
        float16=bool(small_types.shaderFloat16),
        int8=bool(small_types.shaderInt8),
        backends=("vulkan",),
        limits=Limits(
            storage_buffer_range=limits.maxStorageBufferRange,
            allocation_size=maintenance.maxMemoryAllocationSize,
            push_constants=limits.maxPushConstantsSize,
            storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
            shared_memory=limits.maxComputeSharedMemorySize,
            workgroup_count=tuple(limits.maxComputeWorkGroupCount),
            workgroup_invocations=limits.maxComputeWorkGroupInvocations,
            workgroup_size=tuple(limits.maxComputeWorkGroupSize),
        ),
    )
    flags = tuple(memory.memoryTypes[i].propertyFlags for i in range(memory.memoryTypeCount))
    int64 = bool(features.features.shaderInt64) and not least_limits()
    return PhysicalDevice(handle, limited(info), flags, family, int64)


def _device_type(number: int) -> DeviceType:
    types: dict[int, DeviceType] = {1: "integrated", 2: "discrete", 3: "virtual", 4: "software"}
    return types.get(number, "other")
