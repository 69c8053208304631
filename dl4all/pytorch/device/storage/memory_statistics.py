"""``torch.dlall``'s and ``torch.accelerator``'s questions about memory, answered from dl4all's allocator."""

from __future__ import annotations

from typing import Any

from dl4all import memory
from dl4all.pytorch import memory_counters
from dl4all.pytorch.device.devices import device_at, index_of
from dl4all.scheduler.device.current import opened


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors on a device hold, those of dl4all's own API included."""
    return memory.stats(device_at(index_of(device))).allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most that :func:`memory_allocated` ever was, since :func:`reset_peak_memory_stats`."""
    return memory.stats(device_at(index_of(device))).peak


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the driver, in use or kept for reuse."""
    return memory.stats(device_at(index_of(device))).reserved


def max_memory_reserved(device: Any = None) -> int:
    """The most that :func:`memory_reserved` ever was, since :func:`reset_peak_memory_stats`."""
    return memory.stats(device_at(index_of(device))).peak_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin anew."""
    memory.reset_peak(device_at(index_of(device)))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing: dl4all counts requests since the device was opened only."""


def memory_stats(device: Any = None) -> dict[str, int]:
    """Counters of dl4all, by the names that ``torch.cuda.memory_stats`` has for them."""
    return memory_counters.memory_stats(device_at(index_of(device)))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A text about the memory in use, and the largest tensors."""
    return memory.summary(device_at(index_of(device)), 0 if abbreviated else 10)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free and bytes there are. What other processes hold is known of the CPU only."""
    return memory_counters.free_and_total(device_at(index_of(device)))


def empty_cache() -> None:
    """Give memory that nothing lives in back to the driver."""
    for device in opened():
        memory.trim(device)
