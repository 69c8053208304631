"""Whether a device can run a shader: what it declares, against what the device has."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dl4all.errors import ShaderError
from dl4all.runtime.device_info import Limits
from dl4all.runtime.spirv import SpirvModule

# SPIR-V capabilities that every device of Vulkan 1.1 has, and what others are called in ``features``.
CORE = ("Shader", "Matrix", "GroupNonUniform")
FEATURES = {
    "Int64": "int64",
    "Int16": "int16",
    "Int8": "int8",
    "Float16": "float16",
    "StorageBuffer16BitAccess": "storage16",
    "StorageBuffer8BitAccess": "storage8",
    "GroupNonUniformShuffle": "subgroup_shuffle",
    "GroupNonUniformArithmetic": "subgroup_arithmetic",
    "VulkanMemoryModel": "memory_model",
    "DotProduct": "integer_dot_product",
    "DotProductInput4x8BitPacked": "integer_dot_product",
    "CooperativeMatrixKHR": "cooperative_matrix",
}
MAX_BINDINGS = 8  # buffers of one dispatch; a device may allow fewer, but at least 4


def check_interface(
    module: SpirvModule, constants: Sequence[int], limits: Limits, features: frozenset[str]
) -> None:
    """Refuse what a Vulkan device would silently get wrong.

    Raises:
        ShaderError: the bindings are not 0, 1, 2, ..., the device's limits are exceeded, or the
            shader needs a feature that was not enabled.
    """
    check_bindings(module)
    interface = module.interface
    for capability in interface.capabilities:
        if capability not in CORE and FEATURES.get(capability) not in features:
            raise ShaderError(f"[{module.name}] needs {capability}, which is not enabled on the device")
    allowed, count = min(MAX_BINDINGS, limits.storage_buffers), len(interface.bindings)
    if count > allowed:
        raise ShaderError(f"[{module.name}] binds {count} buffers, the device allows {allowed}")
    if interface.push_bytes > limits.push_constants:
        raise ShaderError(
            f"[{module.name}] takes {interface.push_bytes} bytes of push constants, "
            f"the device allows {limits.push_constants}"
        )
    if interface.shared_bytes > limits.shared_memory:
        raise ShaderError(
            f"[{module.name}] shares {interface.shared_bytes} bytes within a workgroup, "
            f"the device allows {limits.shared_memory}"
        )
    size = tuple(
        default if id is None or id >= len(constants) else constants[id]
        for default, id in zip(interface.local_size, interface.local_size_ids, strict=True)
    )
    too_long = any(side > most for side, most in zip(size, limits.workgroup_size, strict=True))
    if too_long or math.prod(size) > limits.workgroup_invocations:
        raise ShaderError(
            f"[{module.name}] has workgroups of {size}, the device allows {limits.workgroup_size} "
            f"and {limits.workgroup_invocations} invocations in all"
        )


def check_bindings(module: SpirvModule) -> None:
    """Refuse a shader that is wrong on every device.

    Raises:
        ShaderError: the bindings are not 0, 1, 2, ...
    """
    indices = [binding.index for binding in module.interface.bindings]
    if indices != list(range(len(indices))):
        raise ShaderError(f"[{module.name}] bindings must be 0, 1, 2, ... without gaps, got {indices}")
