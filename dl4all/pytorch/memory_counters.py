"""The memory of a device by the names that ``torch.cuda`` and ``torch.dlall`` have for it."""

from __future__ import annotations

import psutil

from dl4all import memory
from dl4all.scheduler.device.device import Device


def memory_stats(device: Device) -> dict[str, int]:
    """Counters of a device's memory, by the names of ``torch.cuda.memory_stats``."""
    counts = memory.stats(device)
    return {
        "allocated_bytes.all.current": counts.allocated,
        "allocated_bytes.all.peak": counts.peak,
        "allocation.all.allocated": counts.hits + counts.misses,
        "num_device_alloc": counts.misses,
        "reserved_bytes.all.current": counts.reserved,
        "reserved_bytes.all.peak": counts.peak_reserved,
    }


def free_and_total(device: Device) -> tuple[int, int]:
    """Bytes that are free and bytes there are. What other processes hold is known of the CPU only."""
    total = device.info.memory
    if device.is_cpu:
        return min(total, psutil.virtual_memory().available), total
    return max(0, total - memory.stats(device).reserved), total
