"""The sizes and types of matrices that a device multiplies in one instruction (VK_KHR_cooperative_matrix)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dl4all.runtime.device_info import CooperativeMatrix
from dl4all.runtime.vulkan.debug.debug_tools import function
from dl4all.runtime.vulkan.instance import api

EXTENSION = "VK_KHR_cooperative_matrix"
SUBGROUP = 3  # VK_SCOPE_SUBGROUP_KHR
TYPES = {  # of VkComponentTypeKHR
    0: "float16", 1: "float32", 2: "float64", 3: "int8", 4: "int16", 5: "int32", 6: "int64",
    7: "uint8", 8: "uint16", 9: "uint32", 10: "uint64", 1000141000: "bfloat16",
}  # fmt: skip


def cooperative_matrices(
    made: Any, handle: Any, extensions: Collection[str]
) -> tuple[CooperativeMatrix, ...]:
    """The products that a VkPhysicalDevice of an instance computes; empty without the extension."""
    name = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    ask = function(api(), made, name) if EXTENSION in extensions else None
    if ask is None:
        return ()
    vulkan = api()
    count = vulkan.ffi.new("uint32_t*")
    if ask(handle, count, vulkan.ffi.NULL) or not count[0]:
        return ()
    kind = vulkan.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    listed = [{"sType": kind} for _ in range(count[0])]
    found = vulkan.ffi.new("VkCooperativeMatrixPropertiesKHR[]", listed)
    if ask(handle, count, found):
        return ()
    return tuple(_described(one) for one in found[0 : count[0]] if int(one.scope) == SUBGROUP)


def _described(found: Any) -> CooperativeMatrix:
    types = (found.AType, found.BType, found.CType, found.ResultType)
    a, b, c, result = (TYPES.get(int(number), str(int(number))) for number in types)
    saturates = bool(found.saturatingAccumulation)
    return CooperativeMatrix(found.MSize, found.NSize, found.KSize, a, b, c, result, saturates)
