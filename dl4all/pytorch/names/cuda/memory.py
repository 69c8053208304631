"""``torch.cuda.memory``: the accelerator's memory; without an accelerator there is none, and zeros."""

from __future__ import annotations

from typing import Any

from dl4all import memory
from dl4all.pytorch import memory_counters
from dl4all.pytorch.names import accelerator
from dl4all.scheduler.device.current import cuda_device, cuda_devices

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
]


def empty_cache() -> None:
    """Give memory that no tensor uses back to the accelerator's driver; nothing without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.empty_cache()
    """
    if cuda_devices():
        accelerator.empty_cache()


def memory_allocated(device: Any = None) -> int:
    """The bytes of the accelerator's memory that tensors take; 0 without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.memory_allocated() >= 0
        True
    """
    return accelerator.memory_allocated(device) if cuda_devices() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors took since :func:`reset_peak_memory_stats`; 0 without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.max_memory_allocated() >= dl.cuda.memory_allocated()
        True
    """
    return accelerator.max_memory_allocated(device) if cuda_devices() else 0


def memory_reserved(device: Any = None) -> int:
    """The bytes that are taken from the accelerator's driver, in use or not; 0 without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.memory_reserved() >= 0
        True
    """
    return accelerator.memory_reserved(device) if cuda_devices() else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were taken from the driver; 0 without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.max_memory_reserved() >= dl.cuda.memory_reserved()
        True
    """
    return accelerator.max_memory_reserved(device) if cuda_devices() else 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the maxima begin at the present values; nothing without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> dl.cuda.reset_peak_memory_stats()
    """
    if cuda_devices():
        accelerator.reset_peak_memory_stats(device)


reset_max_memory_allocated = reset_peak_memory_stats


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of the accelerator's memory, by PyTorch's names for them; none without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.cuda.memory_stats()
        {}
    """
    return memory_counters.memory_stats(cuda_device("cuda.memory_stats", device)) if cuda_devices() else {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A text about the accelerator's memory in use, and the largest tensors; empty without an accelerator.

    Example:
        >>> import dl4all as dl
        >>> with dl.device("cpu"):
        ...     dl.cuda.memory_summary()
        ''
    """
    return (
        memory.summary(cuda_device("cuda.memory_summary", device), 0 if abbreviated else 10)
        if cuda_devices()
        else ""
    )


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """The bytes that are free and the bytes there are; (0, 0) without an accelerator.

    Memory of other processes is known of the CPU only, and counts as free.

    Example:
        >>> import dl4all as dl
        >>> free, total = dl.cuda.mem_get_info()
        >>> free <= total
        True
    """
    return (
        memory_counters.free_and_total(cuda_device("cuda.mem_get_info", device)) if cuda_devices() else (0, 0)
    )
