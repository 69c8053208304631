"""``dlall`` as an accelerator of Lightning: of its ``Fabric``, and of its ``Trainer``.

Lightning registers accelerators of others, but computes on the CPU for all that are not CUDA's or Apple's,
and opens ``torch.autocast`` for CUDA. So this one is a kind of CUDA's, put in place of names.
"""

from __future__ import annotations

import functools
import warnings
from types import ModuleType
from typing import Any

import torch

from dl4all.errors import ArgumentError
from dl4all.pytorch.device import devices
from dl4all.pytorch.device.devices import NAME
from dl4all.pytorch.device.storage import memory_statistics

NAMES = ("auto", "gpu", NAME)
"""The values of ``accelerator=`` that mean it."""


def connect(module: ModuleType) -> None:
    """Change the module in which Lightning, or Fabric, turns arguments into an accelerator."""
    connector: Any = getattr(module, "_AcceleratorConnector", None) or module._Connector
    registry: Any = getattr(module, "AcceleratorRegistry", None) or module.ACCELERATOR_REGISTRY
    accelerator = _accelerator(module.CUDAAccelerator)
    read_arguments = connector._check_config_and_set_final_flags
    make_precision = connector._check_and_init_precision
    registry.register(NAME, accelerator, description=accelerator.__doc__)

    @functools.wraps(read_arguments)
    def read(self: Any, *args: Any, **options: Any) -> None:
        read_arguments(self, *args, **options)
        if self._accelerator_flag in NAMES:
            self._accelerator_flag = accelerator()

    @functools.wraps(make_precision)
    def precision(self: Any) -> Any:
        if not isinstance(self.accelerator, accelerator):
            return make_precision(self)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.cuda.amp.GradScaler is enabled")
            made = make_precision(self)
        if isinstance(made, module.MixedPrecision) and made.device == "cuda":
            return module.MixedPrecision(made.precision, NAME)
        return made

    connector._check_config_and_set_final_flags, connector._check_and_init_precision = read, precision


def _accelerator(cuda: Any) -> Any:
    """The class, over Lightning's or Fabric's accelerator of CUDA."""

    class DlallAccelerator(cuda):  # type: ignore[misc]
        """dl4all's device"""

        def setup_device(self, device: torch.device) -> None:
            devices.set_current(device.index or 0)

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return memory_statistics.memory_stats(device)

        def teardown(self) -> None:
            memory_statistics.empty_cache()

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            indices = devices if isinstance(devices, list) else _indices(devices)
            if len(indices) != 1:
                raise ArgumentError(
                    f"[Lightning] devices={devices!r}: it trains on one device of dl4all; give devices=1, or "
                    "a list of one index, as devices=[1]. Several: torchrun and DistributedDataParallel"
                )
            return indices

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(NAME, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return NAME

        @classmethod
        def register_accelerators(cls, registry: Any) -> None:
            registry.register(cls.name(), cls, description=cls.__doc__)

    return DlallAccelerator


def _indices(devices: int | str) -> list[int]:
    """The devices that a number of them, or their indices with commas between them, means."""
    if isinstance(devices, str) and "," in devices:
        return [int(index) for index in devices.split(",") if index.strip()]
    return list(range(int(devices)))
