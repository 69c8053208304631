"""Facts about a device, as the driver reports them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dl4all.config import least_limits

DeviceType = Literal["discrete", "integrated", "virtual", "software", "cpu", "other"]


@dataclass(frozen=True)
class Limits:
    """What one dispatch and one buffer may use. Sizes in bytes; the defaults are Vulkan 1.1's least."""

    storage_buffer_range: int = 2**27
    allocation_size: int = 2**30
    push_constants: int = 128
    storage_buffers: int = 4
    shared_memory: int = 16384
    workgroup_count: tuple[int, int, int] = (65535, 65535, 65535)
    workgroup_invocations: int = 128
    workgroup_size: tuple[int, int, int] = (128, 128, 64)


@dataclass(frozen=True)
class DeviceInfo:
    """One physical device.

    ``index`` counts Vulkan's physical devices and is 0 for the CPU. ``uuid`` is
    the driver's name for the device, the same in every process. ``memory`` is the largest
    device-local heap in bytes, for the CPU the machine's memory. ``subgroup_size`` is 0 where the
    notion does not apply; ``subgroup_shuffle`` says whether compute shaders can exchange values
    between a subgroup's lanes.
    """

    index: int
    hardware: str
    type: DeviceType
    vendor: str
    driver: str
    driver_version: str
    api_version: str
    memory: int
    subgroup_size: int
    subgroup_shuffle: bool
    float16: bool
    int8: bool
    backends: tuple[str, ...]
    uuid: str = ""
    limits: Limits = field(default_factory=Limits)

    @property
    def names(self) -> tuple[str, ...]:
        """What can be written as ``device=``: one name for each backend."""
        return tuple(name if name == "cpu" else f"{name}:{self.index}" for name in self.backends)

    @property
    def is_gpu(self) -> bool:
        return self.type in ("discrete", "integrated", "virtual", "other")


def limited(info: DeviceInfo) -> DeviceInfo:
    """`info` itself, or with ``DL4ALL_LIMITS=minimum`` what is left of it by Vulkan 1.1's least limits.

    Raises:
        ConfigError: the variable holds something else.
    """
    if not least_limits():
        return info
    return replace(info, limits=Limits(), subgroup_shuffle=False, float16=False, int8=False)
