"""``torch.dlall``: what ``torch.cuda`` is for CUDA.

>>> import torch, dl4all.torch
>>> torch.dlall.is_available(), torch.dlall.device_count() >= 1
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dl4all.pytorch.device import devices, generators
from dl4all.pytorch.device.devices import device_at, index_of
from dl4all.pytorch.device.storage.memory_statistics import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from dl4all.pytorch.device.streams import Event, Stream, current_stream, default_stream, set_stream, stream
from dl4all.runtime import fork
from dl4all.scheduler.device.current import opened

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
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
    "reset_accumulated_memory_stats",
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

SUPPORTED_DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip
"""Dtypes of tensors. Some are computed with on the host only (docs/pytorch.md)."""


_initialized = True
"""A flag that ``torch.utils.checkpoint`` reads before it notes the random numbers of a device."""


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device, by ``torch.cuda``'s names where there are such."""

    name: str
    type: str
    """``"discrete"``, ``"integrated"``, ``"virtual"`` or ``"cpu"``."""
    vendor: str
    driver: str
    total_memory: int
    subgroup_size: int
    """The number of invocations that run in step, as a warp of CUDA does; 0 where that means nothing."""


def is_available() -> bool:
    """Whether there is a device; the CPU is one."""
    return True


def is_initialized() -> bool:
    """Whether a device has been opened."""
    return bool(opened())


def init() -> None:
    """Open the current device. Its first use does that, too."""
    device_at(devices.current())


def device_count() -> int:
    """The number of devices; the CPU counts."""
    return len(devices.names())


def current_device() -> int:
    """The index of the device that ``"dlall"`` means."""
    return devices.current()


def set_device(device: Any) -> None:
    """Have ``"dlall"`` mean this device, in all threads.

    Raises:
        UnknownDeviceError: there is no such device.
    """
    index = index_of(device)
    if index >= 0:
        devices.set_current(index)


class device:
    """A context in which ``"dlall"`` means a device; None and negative numbers change nothing.

    >>> import torch, dl4all.torch
    >>> with torch.dlall.device(0):
    ...     x = torch.ones(2, device="dlall")
    >>> x.device
    device(type='dlall', index=0)
    """

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else index_of(device)
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(devices.current())
        if self.idx >= 0:
            devices.set_current(self.idx)

    def __exit__(self, *error: object) -> None:
        devices.set_current(self._before.pop())


class device_of(device):
    """A context in which ``"dlall"`` means the device of a tensor or storage, if that is on one."""

    def __init__(self, value: Any) -> None:
        super().__init__(value.get_device() if value.device.type == devices.NAME else None)


def synchronize(device: Any = None) -> None:
    """Wait until everything that was asked of a device is done.

    Raises:
        ArgumentError: an index that an op took was out of range.
    """
    device_at(index_of(device)).synchronize()


def get_device_name(device: Any = None) -> str:
    """The name of the hardware."""
    return device_at(index_of(device)).info.hardware


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a device."""
    info = device_at(index_of(device)).info
    return DeviceProperties(
        info.hardware, info.type, info.vendor, info.driver, info.memory, info.subgroup_size
    )


def get_device_capability(device: Any = None) -> dict[str, Any]:
    """The dtypes that tensors on a device may have."""
    index_of(device)
    return {"supported_dtypes": set(SUPPORTED_DTYPES)}


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there are bfloat16 tensors: they are computed with as float32 and rounded."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("dlall", dtype=...)`` takes."""
    return [torch.float16, torch.bfloat16]


# Random numbers


def manual_seed(seed: int) -> None:
    """Restart the random numbers of the current device."""
    generators.manual_seed(seed, devices.current())


def manual_seed_all(seed: int) -> None:
    """Restart the random numbers of all devices; ``torch.manual_seed`` calls this."""
    generators.manual_seed_all(seed)


def seed() -> None:
    """Restart the random numbers of the current device somewhere."""
    manual_seed(_any_seed())


def seed_all() -> None:
    """Restart the random numbers of all devices somewhere."""
    manual_seed_all(_any_seed())


def _any_seed() -> int:
    return torch.Generator().seed()


def initial_seed() -> int:
    """The seed of the current device's random numbers."""
    return generators.generator_of(devices.current()).get_state()[0]


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of the random numbers of a device, as bytes on the CPU."""
    return generators.get_state(index_of(device))


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Go on with random numbers from a state of :func:`get_rng_state`.

    Raises:
        ArgumentError: it is no such state.
    """
    generators.set_state(new_state, index_of(device))


def get_rng_state_all() -> list[torch.Tensor]:
    """:func:`get_rng_state` of each device."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Any) -> None:
    """:func:`set_rng_state` of each device."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had opened a driver's device."""
    return fork.refused
