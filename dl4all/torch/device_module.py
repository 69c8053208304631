"""``torch.dlall``: what ``torch.cuda`` is for CUDA."""

from __future__ import annotations

import types
from typing import Any

from dl4all.torch import devices, generators
from dl4all.torch.devices import NAME, device_at, index_of


class DeviceModule(types.ModuleType):
    """The module ``torch.dlall``."""

    def __init__(self) -> None:
        super().__init__(f"torch.{NAME}")

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        """How many devices there are; the CPU counts."""
        return len(devices.names())

    def current_device(self) -> int:
        return devices.current()

    def set_device(self, device: Any) -> None:
        devices.set_current(index_of(device))

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Seed the random numbers of all devices."""
        generators.manual_seed_all(seed)

    def synchronize(self, device: Any = None) -> None:
        """Wait until everything that was asked of a device is done."""
        device_at(index_of(device)).synchronize()
