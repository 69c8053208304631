"""Facts about a device, as the driver reports them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dl4all.config import least_limits

DeviceType = Literal["discrete", "integrated", "virtual", "software", "cpu", "other"]


@dataclass(frozen=True)
class Limits:
    """Limits of one dispatch and one buffer. Sizes in bytes; the defaults are Vulkan 1.1's least."""

    storage_buffer_range: int = 2**27
    allocation_size: int = 2**30
    push_constants: int = 128
    storage_buffers: int = 4
    shared_memory: int = 16384
    workgroup_count: tuple[int, int, int] = (65535, 65535, 65535)
    workgroup_invocations: int = 128
    workgroup_size: tuple[int, int, int] = (128, 128, 64)
    storage_alignment: int = 256  # of the offset at which a storage buffer is bound
    texel_elements: int = 65536  # of a texel buffer
    texel_alignment: int = 256  # of the offset at which a texel buffer is bound
    allocations: int = 4096  # at one time


@dataclass(frozen=True)
class Heap:
    """One of the memories that a device can reach."""

    nbytes: int
    device_local: bool  # the device's own, not the host's


@dataclass(frozen=True)
class QueueFamily:
    """Queues of one kind."""

    flags: tuple[str, ...]  # what they can do: graphics, compute, transfer, ...
    count: int


@dataclass(frozen=True)
class CooperativeMatrix:
    """Matrices that a subgroup multiplies in one instruction: A of m x k times B of k x n, added to C.

    The types of A, B, C and the result are named as NumPy's, and ``bfloat16``. A result that ``saturates`` is
    the nearest integer of its type.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    result: str
    saturates: bool = False


@dataclass(frozen=True)
class DeviceInfo:
    """One physical device, as one driver describes it.

    ``index`` counts Vulkan's physical devices and is 0 for the CPU. ``uuid`` is the device's name in
    every process, ``pci`` its address (``0000:03:00.0``); each is empty where there is none. ``memory``
    is the largest device-local heap in bytes, for the CPU the machine's memory. ``subgroup_size`` is 0
    where the notion does not apply. ``features`` are the optional ones that shaders can use, by the names
    of :mod:`dl4all.runtime.vulkan.features`. ``driver_id`` is Vulkan's name for the driver's maker in small
    letters (``mesa_radv``), ``driver`` what the driver calls itself.

    ``others`` is the same hardware as other drivers describe it, the better ones first.
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
    backends: tuple[str, ...]
    features: frozenset[str] = frozenset()
    driver_id: str = ""
    uuid: str = ""
    pci: str = ""
    limits: Limits = field(default_factory=Limits)
    heaps: tuple[Heap, ...] = ()
    queue_families: tuple[QueueFamily, ...] = ()
    cooperative_matrices: tuple[CooperativeMatrix, ...] = ()
    others: tuple[DeviceInfo, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can be written as ``device=``: one for each backend."""
        return tuple(name if name == "cpu" else f"{name}:{self.index}" for name in self.backends)

    @property
    def drivers(self) -> tuple[DeviceInfo, ...]:
        """The hardware as each of its drivers describes it, this one first."""
        return (self, *self.others)

    @property
    def is_gpu(self) -> bool:
        return self.type in ("discrete", "integrated", "virtual", "other")

    @property
    def compiles_only(self) -> bool:
        """Whether a driver describes hardware that is not here, to compile for; it has no memory then."""
        return self.type != "cpu" and not self.memory

    @property
    def subgroup_shuffle(self) -> bool:
        """Whether compute shaders can exchange values between a subgroup's lanes."""
        return "subgroup_shuffle" in self.features

    @property
    def short_subgroups(self) -> bool:
        """Whether it is a processor that computes 8 invocations as one vector, whose lanes can be exchanged.

        Shared memory and barriers are slow there, and lanes fast: kernels for it go without the former.
        """
        return self.type == "software" and self.subgroup_size == 8 and self.subgroup_shuffle

    @property
    def float16(self) -> bool:
        """Whether shaders can compute with 16-bit floats."""
        return "float16" in self.features

    @property
    def int8(self) -> bool:
        """Whether shaders can compute with 8-bit integers."""
        return "int8" in self.features


def limited(info: DeviceInfo) -> DeviceInfo:
    """`info` itself, or with ``DL4ALL_LIMITS=minimum`` what is left of it by Vulkan 1.1's least limits.

    Raises:
        ConfigError: the variable holds something else.
    """
    if not least_limits():
        return info
    return replace(info, limits=Limits(), features=frozenset(), cooperative_matrices=())
