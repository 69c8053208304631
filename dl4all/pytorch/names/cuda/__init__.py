"""Names of ``torch.cuda`` that scripts ask: there is no CUDA, and whatever asks first goes on without it.

GPUs of all makers, NVIDIA's too, are reached through Vulkan: ``dl.device("gpu")``, :mod:`dl4all.accelerator`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from dl4all.errors import BackendMissingError
from dl4all.errors import OutOfMemoryError as OutOfMemoryError
from dl4all.pytorch.names.cuda import amp as amp
from dl4all.tensor.legacy import CudaTensorType

__all__ = [
    "OutOfMemoryError",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_device",
    "synchronize",
]


def is_available() -> bool:
    """False: use ``dl.accelerator.is_available()``.

    Example:
        >>> import dl4all as dl
        >>> dl.device("auto" if dl.cuda.is_available() else "cpu")
        device('cpu')
    """
    return False


def is_initialized() -> bool:
    """False.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.is_initialized()
        False
    """
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False: there are no tensors of bfloat16.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.is_bf16_supported()
        False
    """
    return False


def device_count() -> int:
    """0.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.device_count()
        0
    """
    return 0


def manual_seed(seed: int) -> None:
    """Nothing, as in PyTorch without CUDA: ``dl.manual_seed`` is for every device.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.manual_seed(0)  # nothing happens
    """


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Nothing, as in PyTorch without CUDA: ``dl.accelerator.empty_cache`` gives memory back.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.empty_cache()  # nothing happens
    """


def memory_allocated(device: Any = None) -> int:
    """0: ``dl.accelerator.memory_allocated`` tells of a device.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.memory_allocated()
        0
    """
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing: ``dl.accelerator.reset_peak_memory_stats`` is for a device.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.reset_peak_memory_stats()  # nothing happens
    """


reset_max_memory_allocated = reset_peak_memory_stats


def refusal(name: str, instead: str) -> NoReturn:
    """
    Raises:
        BackendMissingError: always, with what to use instead.
    """
    raise BackendMissingError(f"[cuda.{name}] dl4all has no CUDA devices; use {instead}")


def synchronize(device: Any = None) -> NoReturn:
    """An error, as in PyTorch without CUDA.

    Raises:
        BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.cuda.synchronize()
        ... except dl.errors.BackendMissingError as error:
        ...     print(str(error).partition("; ")[2])
        use dl.synchronize()
    """
    refusal("synchronize", "dl.synchronize()")


def set_device(device: Any) -> NoReturn:
    """An error, as in PyTorch without CUDA.

    Raises:
        BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.cuda.set_device(0)
        ... except dl.errors.BackendMissingError as error:
        ...     print(str(error).partition("; ")[2])
        use dl.set_default_device(name)
    """
    refusal("set_device", "dl.set_default_device(name)")


def current_device() -> NoReturn:
    """An error, as in PyTorch without CUDA.

    Raises:
        BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.cuda.current_device()
        ... except dl.errors.BackendMissingError as error:
        ...     print(str(error).partition("; ")[2])
        use dl.device("auto")
    """
    refusal("current_device", 'dl.device("auto")')


def get_device_name(device: Any = None) -> NoReturn:
    """An error, as in PyTorch without CUDA.

    Raises:
        BackendMissingError

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     dl.cuda.get_device_name()
        ... except dl.errors.BackendMissingError as error:
        ...     print(str(error).partition("; ")[2])
        use dl.device(name).info.hardware
    """
    refusal("get_device_name", "dl.device(name).info.hardware")


FloatTensor: Any = CudaTensorType("cuda.FloatTensor", "float32")
DoubleTensor: Any = CudaTensorType("cuda.DoubleTensor", "float64")
HalfTensor: Any = CudaTensorType("cuda.HalfTensor", "float16")
LongTensor: Any = CudaTensorType("cuda.LongTensor", "int64")
IntTensor: Any = CudaTensorType("cuda.IntTensor", "int32")
ByteTensor: Any = CudaTensorType("cuda.ByteTensor", "uint8")
BoolTensor: Any = CudaTensorType("cuda.BoolTensor", "bool")
