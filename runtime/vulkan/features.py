"""Optional features: which a device has, and how to ask for them when it is opened.

A feature is a member of a structure that may be chained where the device's version or an extension
defines it. The same table serves the query and the request, so that everything found is enabled.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from dl4all.config import least_limits
from dl4all.runtime.vulkan.instance import api
from dl4all.runtime.vulkan.structs import struct

V1_1, V1_2, V1_3 = ((1 << 22) | (minor << 12) for minor in (1, 2, 3))
NEVER = 1 << 31  # core in no version


class Group(NamedTuple):
    """A structure of features, the version that has it, the extension it came from, and what to take."""

    structure: str
    core: int
    extension: str
    members: dict[str, str]  # our name: Vulkan's


GROUPS = (
    Group(
        "VkPhysicalDevice16BitStorageFeatures", V1_1, "", {"storage16": "storageBuffer16BitAccess"}
    ),
    Group(
        "VkPhysicalDevice8BitStorageFeatures", V1_2, "VK_KHR_8bit_storage",
        {"storage8": "storageBuffer8BitAccess"},
    ),
    Group(
        "VkPhysicalDeviceShaderFloat16Int8Features", V1_2, "VK_KHR_shader_float16_int8",
        {"float16": "shaderFloat16", "int8": "shaderInt8"},
    ),
    Group(
        "VkPhysicalDeviceTimelineSemaphoreFeatures", V1_2, "", {"timeline_semaphore": "timelineSemaphore"}
    ),
    Group(
        "VkPhysicalDeviceVulkanMemoryModelFeatures", V1_2, "VK_KHR_vulkan_memory_model",
        {"memory_model": "vulkanMemoryModel", "memory_model_device_scope": "vulkanMemoryModelDeviceScope"},
    ),
    Group(
        "VkPhysicalDeviceSubgroupSizeControlFeatures", V1_3, "VK_EXT_subgroup_size_control",
        {"subgroup_size_control": "subgroupSizeControl", "full_subgroups": "computeFullSubgroups"},
    ),
    Group(
        "VkPhysicalDeviceShaderIntegerDotProductFeatures", V1_3, "VK_KHR_shader_integer_dot_product",
        {"integer_dot_product": "shaderIntegerDotProduct"},
    ),
    Group(
        "VkPhysicalDeviceCooperativeMatrixFeaturesKHR", NEVER, "VK_KHR_cooperative_matrix",
        {"cooperative_matrix": "cooperativeMatrix"},
    ),
)  # fmt: skip
CORE = {"int64": "shaderInt64", "int16": "shaderInt16"}  # members of VkPhysicalDeviceFeatures
EXTENSIONS = {"memory_budget": "VK_EXT_memory_budget"}  # that are features in themselves


def supported(handle: Any, api_version: int, extensions: Collection[str]) -> frozenset[str]:
    """The features of a VkPhysicalDevice; none with ``DL4ALL_LIMITS=minimum``."""
    if least_limits():
        return frozenset()
    vulkan = api()
    lib = vulkan.lib
    groups = [group for group in GROUPS if _defined(group, api_version, extensions)]
    chain, parts = _chain(groups, frozenset())
    asked = struct("VkPhysicalDeviceFeatures2", pNext=chain)
    lib.vkGetPhysicalDeviceFeatures2(handle, asked)
    found = {name for name, member in CORE.items() if getattr(asked.features, member)}
    for group, part in zip(groups, parts, strict=True):
        found |= {name for name, member in group.members.items() if getattr(part, member)}
    found |= {name for name, extension in EXTENSIONS.items() if extension in extensions}

    subgroup = struct("VkPhysicalDeviceSubgroupProperties")
    lib.vkGetPhysicalDeviceProperties2(handle, struct("VkPhysicalDeviceProperties2", pNext=subgroup))
    if subgroup.supportedStages & vulkan.VK_SHADER_STAGE_COMPUTE_BIT:
        for name in ("shuffle", "arithmetic"):
            if subgroup.supportedOperations & getattr(vulkan, f"VK_SUBGROUP_FEATURE_{name.upper()}_BIT"):
                found.add(f"subgroup_{name}")
    return frozenset(found)


class DeviceRequest(NamedTuple):
    """The features and extensions that go into VkDeviceCreateInfo."""

    chain: Any  # its pNext
    core: Any  # its pEnabledFeatures
    extensions: list[str]


def request(wanted: frozenset[str], api_version: int) -> DeviceRequest:
    """Enable features that :func:`supported` found."""
    groups = [group for group in GROUPS if wanted & group.members.keys()]
    chain, _ = _chain(groups, wanted)
    core = {member: name in wanted for name, member in CORE.items()}
    needed = [group.extension for group in groups if api_version < group.core and group.extension]
    needed += [extension for name, extension in EXTENSIONS.items() if name in wanted]
    return DeviceRequest(chain, api().ffi.new("VkPhysicalDeviceFeatures*", core), needed)


def _defined(group: Group, api_version: int, extensions: Collection[str]) -> bool:
    return api_version >= group.core or group.extension in extensions


def _chain(groups: list[Group], enabled: frozenset[str]) -> tuple[Any, list[Any]]:
    """The groups' structures, each pointing to the one after it."""
    chain, parts = None, list[Any]()
    for group in reversed(groups):
        members = {member: name in enabled for name, member in group.members.items()}
        chain = struct(group.structure, pNext=chain, **members)
        parts.insert(0, chain)
    return chain, parts
