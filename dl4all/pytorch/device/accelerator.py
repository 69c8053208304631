"""``torch.accelerator`` on ``dlall``.

Its functions ask private ones of PyTorch's extension, which know nothing of a backend in Python. Those are
replaced by functions of ``torch.dlall``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dl4all.pytorch.device import device_module, devices, streams
from dl4all.pytorch.device.storage import memory_statistics


def _set_index(index: int) -> None:
    if index >= 0:
        devices.set_current(index)


def _exchange(index: int) -> int:
    before = devices.current()
    _set_index(index)
    return before


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_accelerator_emptyCache": memory_statistics.empty_cache,
    "_accelerator_emptyHostCache": lambda: None,  # pinned memory goes back when its tensor is garbage
    "_accelerator_exchangeDevice": _exchange,
    "_accelerator_getDeviceCapability": device_module.get_device_capability,
    "_accelerator_getDeviceIndex": devices.current,
    "_accelerator_getDeviceStats": memory_statistics.memory_stats,
    "_accelerator_getMemoryInfo": memory_statistics.mem_get_info,
    "_accelerator_getStream": streams.current_stream,
    "_accelerator_hooks_device_count": device_module.device_count,
    "_accelerator_hooks_exchange_device": _exchange,
    "_accelerator_hooks_get_current_device": devices.current,
    "_accelerator_hooks_maybe_exchange_device": _exchange,
    "_accelerator_hooks_set_current_device": _set_index,
    "_accelerator_isAllocatorInitialized": lambda: True,
    "_accelerator_maybeExchangeDevice": _exchange,
    "_accelerator_resetAccumulatedStats": memory_statistics.reset_accumulated_memory_stats,
    "_accelerator_resetPeakStats": memory_statistics.reset_peak_memory_stats,
    "_accelerator_setDeviceIndex": _set_index,
    "_accelerator_setStream": streams.set_stream,
    "_accelerator_synchronizeDevice": device_module.synchronize,
}
"""By the names in ``torch._C``."""


def patch() -> None:
    """Put them in place."""
    for name, function in FUNCTIONS.items():
        setattr(torch._C, name, function)
