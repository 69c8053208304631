"""Which Vulkan devices are here, and what they can do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dl4all.errors import BackendMissingError, DeviceError
from dl4all.runtime import fork
from dl4all.runtime.device_info import DeviceInfo, DeviceType, Heap, Limits, QueueFamily, limited
from dl4all.runtime.vulkan.cooperative_matrices import cooperative_matrices
from dl4all.runtime.vulkan.features import V1_2, supported
from dl4all.runtime.vulkan.instance import api, check, instance, version
from dl4all.runtime.vulkan.structs import struct

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
NO_DEVICE = (
    "Vulkan drivers are installed, but none of them finds a device that it knows; install your GPU's driver, "
    "let your user open /dev/dri/renderD* (dl4all doctor), or for software rendering: "
    "apt install mesa-vulkan-drivers (dnf: mesa-vulkan-drivers; pacman: vulkan-swrast)"
)
# By bit, from VK_QUEUE_GRAPHICS_BIT on.
QUEUE_FLAGS = ("graphics", "compute", "transfer", "sparse", "protected", "video decode", "video encode")


@dataclass(frozen=True)
class PhysicalDevice:
    """A VkPhysicalDevice with its facts, its memory types' property flags and what it can enable."""

    handle: Any
    info: DeviceInfo
    memory_types: tuple[int, ...]
    queue_family: int
    queues: int  # of that family
    api_version: int  # packed
    extensions: frozenset[str]


_lock = fork.lock()


def physical_devices(opening: int = 0) -> tuple[PhysicalDevice, ...]:
    """All devices with a compute queue, in the order the loader gives them; each `opening` has its own.

    Raises:
        BackendMissingError: there is no loader, no driver, or no device that any driver knows.
    """
    with _lock:  # functools.cache alone lets two threads that come first make an instance each
        return _enumerate(opening)


def check_memory(physical: PhysicalDevice) -> None:
    """Refuse what a driver only describes before a VkDevice is made of it: some cannot even be closed again.

    Raises:
        DeviceError: the device has no memory.
    """
    if physical.info.compiles_only or not physical.memory_types:
        raise DeviceError(
            f"[vulkan] {physical.info.hardware} compiles only, as it has no memory: {physical.info.driver} "
            "describes a GPU that is not here; unset RADV_FORCE_FAMILY, or name another device"
        )


@functools.cache
def _enumerate(opening: int) -> tuple[PhysicalDevice, ...]:
    made = instance(opening)
    handles = _list("VkPhysicalDevice", functools.partial(_enumerate_handles, made))
    if not len(handles):
        raise BackendMissingError(f"[vulkan] {NO_DEVICE}")
    found = []
    for index, handle in enumerate(handles):
        families = _list(
            "VkQueueFamilyProperties",
            functools.partial(api().lib.vkGetPhysicalDeviceQueueFamilyProperties, handle),
        )
        compute = [i for i, f in enumerate(families) if f.queueFlags & api().VK_QUEUE_COMPUTE_BIT]
        if compute:
            found.append(_describe(made, handle, index, families, compute[0]))
    return tuple(found)


fork.in_child(_enumerate.cache_clear)  # handles are of an instance


def _enumerate_handles(of: Any, count: Any, into: Any) -> None:
    result = api().lib.vkEnumeratePhysicalDevices(of, count, into)
    if result == api().VK_ERROR_INITIALIZATION_FAILED:  # how some loaders say that there are none
        raise BackendMissingError(f"[vulkan] {NO_DEVICE}")
    check(result, "listing the devices")


def _list(kind: str, call: Callable[[Any, Any], object]) -> Any:
    """The array of what one of Vulkan's functions lists, which is asked first how many there are."""
    ffi = api().ffi
    count = ffi.new("uint32_t*")
    call(count, ffi.NULL)
    listed = ffi.new(f"{kind}[]", count[0])
    call(count, listed)
    return listed


def _extensions(handle: Any) -> frozenset[str]:
    ffi, lib = api().ffi, api().lib

    def call(count: Any, into: Any) -> None:
        check(lib.vkEnumerateDeviceExtensionProperties(handle, ffi.NULL, count, into), "listing extensions")

    return frozenset(ffi.string(e.extensionName).decode() for e in _list("VkExtensionProperties", call))


def _describe(made: Any, handle: Any, index: int, families: Any, family: int) -> PhysicalDevice:
    vulkan = api()
    ffi, lib = vulkan.ffi, vulkan.lib
    basic = ffi.new("VkPhysicalDeviceProperties*")
    lib.vkGetPhysicalDeviceProperties(handle, basic)
    extensions = _extensions(handle)

    # A structure may only be chained where the device's version or extensions define it.
    subgroup = struct("VkPhysicalDeviceSubgroupProperties")
    identity = struct("VkPhysicalDeviceIDProperties", pNext=subgroup)
    chain = maintenance = struct("VkPhysicalDeviceMaintenance3Properties", pNext=identity)
    driver = pci = None
    if basic.apiVersion >= V1_2 or "VK_KHR_driver_properties" in extensions:
        chain = driver = struct("VkPhysicalDeviceDriverProperties", pNext=chain)
    if "VK_EXT_pci_bus_info" in extensions:
        chain = pci = struct("VkPhysicalDevicePCIBusInfoPropertiesEXT", pNext=chain)
    properties = struct("VkPhysicalDeviceProperties2", pNext=chain)
    lib.vkGetPhysicalDeviceProperties2(handle, properties)
    memory = ffi.new("VkPhysicalDeviceMemoryProperties*")
    lib.vkGetPhysicalDeviceMemoryProperties(handle, memory)

    facts = properties.properties
    heaps = tuple(
        Heap(heap.size, bool(heap.flags & vulkan.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
        for heap in memory.memoryHeaps[0 : memory.memoryHeapCount]
    )
    name, details = ("", "") if driver is None else map(_text, (driver.driverName, driver.driverInfo))
    info = DeviceInfo(
        index=index,
        hardware=_text(facts.deviceName),
        uuid=bytes(identity.deviceUUID).hex(),
        pci="" if pci is None else pci_address(pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction),
        type=_device_type(facts.deviceType),
        vendor=VENDORS.get(facts.vendorID, f"0x{facts.vendorID:04x}"),
        driver=name or "unknown",
        driver_id="" if driver is None else _driver_ids().get(driver.driverID, str(driver.driverID)),
        driver_version=details or str(facts.driverVersion),
        api_version=version(facts.apiVersion),
        memory=max((heap.nbytes for heap in heaps if heap.device_local), default=0),
        subgroup_size=subgroup.subgroupSize,
        features=supported(handle, facts.apiVersion, extensions),
        backends=("vulkan",),
        limits=_limits(facts.limits, maintenance.maxMemoryAllocationSize),
        heaps=heaps,
        cooperative_matrices=cooperative_matrices(made, handle, extensions),
        queue_families=tuple(QueueFamily(queue_flags(f.queueFlags), f.queueCount) for f in families),
    )
    flags = tuple(kind.propertyFlags for kind in memory.memoryTypes[0 : memory.memoryTypeCount])
    queues = families[family].queueCount
    return PhysicalDevice(handle, limited(info), flags, family, queues, facts.apiVersion, extensions)


def _limits(limits: Any, allocation_size: int) -> Limits:
    return Limits(
        storage_buffer_range=limits.maxStorageBufferRange,
        allocation_size=allocation_size,
        push_constants=limits.maxPushConstantsSize,
        storage_buffers=limits.maxPerStageDescriptorStorageBuffers,
        shared_memory=limits.maxComputeSharedMemorySize,
        workgroup_count=tuple(limits.maxComputeWorkGroupCount),
        workgroup_invocations=limits.maxComputeWorkGroupInvocations,
        workgroup_size=tuple(limits.maxComputeWorkGroupSize),
        storage_alignment=limits.minStorageBufferOffsetAlignment,
        texel_elements=limits.maxTexelBufferElements,
        texel_alignment=limits.minTexelBufferOffsetAlignment,
        allocations=limits.maxMemoryAllocationCount,
    )


def pci_address(domain: int, bus: int, device: int, function: int) -> str:
    """As lspci and /sys/bus/pci write it.

    >>> pci_address(0, 3, 0, 0)
    '0000:03:00.0'
    """
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"


def queue_flags(bits: int) -> tuple[str, ...]:
    """The abilities of queues; bits that are not in the table are left out.

    >>> queue_flags(7)
    ('graphics', 'compute', 'transfer')
    """
    return tuple(name for bit, name in enumerate(QUEUE_FLAGS) if bits >> bit & 1)


@functools.cache
def _driver_ids() -> dict[int, str]:
    """Vulkan's names for the makers of drivers: 3 is mesa_radv."""
    vulkan = api()
    prefix = "VK_DRIVER_ID_"
    names = [name for name in dir(vulkan) if name.startswith(prefix) and not name.startswith(prefix + "_")]
    return {getattr(vulkan, name): name.removeprefix(prefix).removesuffix("_KHR").lower() for name in names}


def _text(characters: Any) -> str:
    return str(api().ffi.string(characters).decode())


def _device_type(number: int) -> DeviceType:
    types: dict[int, DeviceType] = {1: "integrated", 2: "discrete", 3: "virtual", 4: "software"}
    return types.get(number, "other")
