"""The accelerator under the names of ``torch.cuda``, by which scripts ask for a GPU.

CUDA itself is not here: GPUs of all makers, NVIDIA's too, are reached through Vulkan. ``"cuda"`` names the
device that new tensors go to, unless that is the CPU (:mod:`dl4all.accelerator`), and ``"cuda:1"`` the next
GPU. Where there is no accelerator, or with ``DL4ALL_CUDA=0``, everything here answers as PyTorch does without
CUDA.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dl4all.errors import OutOfMemoryError as OutOfMemoryError
from dl4all.pytorch.names import accelerator
from dl4all.pytorch.names.cuda import amp as amp
from dl4all.pytorch.names.cuda import memory as memory
from dl4all.pytorch.names.cuda import random as random
from dl4all.pytorch.names.cuda.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from dl4all.pytorch.names.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from dl4all.pytorch.names.cuda.streams import (
    CudaEvent as Event,
)
from dl4all.pytorch.names.cuda.streams import (
    CudaStream as Stream,
)
from dl4all.pytorch.names.cuda.streams import (
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from dl4all.scheduler.device import current
from dl4all.scheduler.device.current import cuda_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.legacy import CudaTensorType

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """Whether ``"cuda"`` names a device here: the one that new tensors go to, if that is not the CPU.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.cuda.is_available()
        False
    """
    return bool(current.cuda_devices())


def init() -> None:
    """Open the accelerator, if there is one. Its first use does that, too.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.init()
    """
    if is_available():
        current.device("cuda")


def is_initialized() -> bool:
    """Whether the accelerator has been opened.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.cuda.is_initialized()
        False
    """
    names = current.cuda_devices()
    return any(opened.name in names for opened in current.opened())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there are tensors of bfloat16: every device has them.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.is_bf16_supported()
        True
    """
    return True


def device_count() -> int:
    """The number of devices that ``"cuda:0"``, ``"cuda:1"``, ... name: 0 without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.cuda.device_count()
        0
    """
    return len(current.cuda_devices())


def current_device() -> int:
    """The number of the device that ``"cuda"`` means.

    Raises:
        BackendMissingError: there is no accelerator.

    Example:
        >>> import dl4all as dl
        >>> if dl.cuda.is_available():
        ...     number = dl.cuda.current_device()
    """
    cuda_device("cuda.current_device")
    return accelerator.current_device_index()


def set_device(device: Any) -> None:
    """Have new tensors, and ``"cuda"``, go to another accelerator.

    Raises:
        BackendMissingError: there is no accelerator.
        UnknownDeviceError: there is none of that name or number.

    Example:
        >>> import dl4all as dl
        >>> if dl.cuda.is_available():
        ...     dl.cuda.set_device(0)
    """
    current.set_default_device(cuda_device("cuda.set_device", device))


def synchronize(device: Any = None) -> None:
    """Wait until everything that was asked of the accelerator, or of a device, is done.

    Raises:
        BackendMissingError: there is no accelerator.

    Example:
        >>> import dl4all as dl
        >>> if dl.cuda.is_available():
        ...     dl.cuda.synchronize()
    """
    current.synchronize(cuda_device("cuda.synchronize", device))


class CudaDeviceProperties(NamedTuple):
    """Properties of a device, by the names of ``torch.cuda.get_device_properties``."""

    name: str
    total_memory: int
    """Bytes."""
    major: int = 0
    """Of a CUDA capability, which the device has not: whatever asks for one is answered no."""
    minor: int = 0
    multi_processor_count: int = 1
    """Vulkan does not tell it."""
    is_integrated: bool = False
    warp_size: int = 0
    """Invocations that run in step; 0 where that means nothing."""


def get_device_properties(device: Any = None) -> CudaDeviceProperties:
    """The properties of the accelerator, or of a device.

    Raises:
        BackendMissingError: there is no accelerator.

    Example:
        >>> import dl4all as dl
        >>> if dl.cuda.is_available():
        ...     memory = dl.cuda.get_device_properties(0).total_memory
    """
    info = cuda_device("cuda.get_device_properties", device).info
    return CudaDeviceProperties(
        info.hardware, info.memory, is_integrated=info.type == "integrated", warp_size=info.subgroup_size
    )


def get_device_name(device: Any = None) -> str:
    """The name of the accelerator, or of a device, as its driver has it.

    Raises:
        BackendMissingError: there is no accelerator.

    Example:
        >>> import dl4all as dl
        >>> if dl.cuda.is_available():
        ...     name = dl.cuda.get_device_name()
    """
    return cuda_device("cuda.get_device_name", device).info.hardware


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(0, 0): no device has a CUDA capability, so that code for a later one is not taken.

    Raises:
        BackendMissingError: there is no accelerator.

    Example:
        >>> import dl4all as dl
        >>> if dl.cuda.is_available():
        ...     print(dl.cuda.get_device_capability() >= (8, 0))
    """
    cuda_device("cuda.get_device_capability", device)
    return 0, 0


def get_arch_list() -> list[str]:
    """[]: nothing is compiled for a CUDA capability.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.get_arch_list()
        []
    """
    return []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """False: what goes from one device to another passes through the host.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.can_device_access_peer(0, 1)
        False
    """
    return False


def ipc_collect() -> None:
    """Nothing: no memory of a device is shared with other processes.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.ipc_collect()  # nothing happens
    """


class device:
    """A block in which new tensors, and ``"cuda"``, go to another accelerator; None changes nothing.

    Args:
        device: a name, a number or a device.

    Example:
        >>> import dl4all as dl
        >>> with dl.cuda.device(None):
        ...     x = dl.ones(2)
    """

    def __init__(self, device: Any) -> None:
        self._device: Device | None = None if device is None else cuda_device("cuda.device", device)

    def __enter__(self) -> None:
        if self._device is not None:
            self._device.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._device is not None:
            self._device.__exit__(*error)


class device_of(device):
    """A block in which new tensors go to the device of a tensor; one on the CPU changes nothing.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2, device="cpu")
        >>> with dl.cuda.device_of(x):
        ...     y = dl.ones(2)
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


FloatTensor: Any = CudaTensorType("cuda.FloatTensor", "float32")
DoubleTensor: Any = CudaTensorType("cuda.DoubleTensor", "float64")
HalfTensor: Any = CudaTensorType("cuda.HalfTensor", "float16")
LongTensor: Any = CudaTensorType("cuda.LongTensor", "int64")
IntTensor: Any = CudaTensorType("cuda.IntTensor", "int32")
ShortTensor: Any = CudaTensorType("cuda.ShortTensor", "int16")
CharTensor: Any = CudaTensorType("cuda.CharTensor", "int8")
ByteTensor: Any = CudaTensorType("cuda.ByteTensor", "uint8")
BoolTensor: Any = CudaTensorType("cuda.BoolTensor", "bool")
