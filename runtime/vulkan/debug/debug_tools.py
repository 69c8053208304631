"""Which tools see the commands of a Vulkan instance, and whether they are to be shown names.

``DL4ALL_DEBUG_NAMES`` turns names on or off. Without it they are on where a tool that records or profiles
is there, as such tools tell by ``vkGetPhysicalDeviceToolProperties``, or where RADV is to write a profile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from dl4all.config import debug_names_setting

EXTENSION = "VK_EXT_debug_utils"
RADV_TRACES = ("MESA_VK_TRACE", "RADV_THREAD_TRACE", "RADV_THREAD_TRACE_TRIGGER")  # the driver is the tool
V1_3 = (1 << 22) | (3 << 12)  # whose devices have the function


def wanted(vulkan: Any, made: Any) -> bool:
    """Whether an instance's devices are to name what they have.

    Raises:
        ConfigError: DL4ALL_DEBUG_NAMES holds something unusable.
    """
    setting = debug_names_setting()
    if setting is not None:
        return setting
    if any(os.environ.get(variable) for variable in RADV_TRACES):
        return True
    shows = vulkan.VK_TOOL_PURPOSE_PROFILING_BIT | vulkan.VK_TOOL_PURPOSE_TRACING_BIT
    return any(purposes & shows for _, purposes in tools(vulkan, made))


def tools(vulkan: Any, made: Any) -> Iterator[tuple[str, int]]:
    """The tools that an instance's devices are seen by: names and VkToolPurposeFlags."""
    ffi, lib = vulkan.ffi, vulkan.lib
    ask = function(vulkan, made, "vkGetPhysicalDeviceToolProperties")
    count = ffi.new("uint32_t*")
    if ask is None or lib.vkEnumeratePhysicalDevices(made, count, ffi.NULL):
        return
    handles = ffi.new("VkPhysicalDevice[]", count[0])
    if lib.vkEnumeratePhysicalDevices(made, count, handles):
        return
    properties = ffi.new("VkPhysicalDeviceProperties*")
    kind = vulkan.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TOOL_PROPERTIES
    for handle in handles:
        lib.vkGetPhysicalDeviceProperties(handle, properties)
        if properties.apiVersion < V1_3 or ask(handle, count, ffi.NULL) or not count[0]:
            continue
        found = ffi.new("VkPhysicalDeviceToolProperties[]", [{"sType": kind} for _ in range(count[0])])
        if ask(handle, count, found) == 0:
            for tool in found[0 : count[0]]:
                yield ffi.string(tool.name).decode(errors="replace"), int(tool.purposes)


def function(vulkan: Any, made: Any, name: str) -> Any:
    """An extension's function of an instance, None where it has none of that name."""
    found = vulkan.lib.vkGetInstanceProcAddr(made, name.encode())
    return vulkan.ffi.cast(f"PFN_{name}", found) if found else None
