"""The device of Hugging Face's accelerate: ``dlall``, alone or in a group of processes over gloo."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

from dl4all.pytorch.device import devices
from dl4all.pytorch.device.devices import NAME


def prefer(state: ModuleType) -> None:
    """Make ``dlall`` the device where the caller names none; ``cpu=True`` is still the CPU.

    Of a group of processes accelerate asks of what kind it is, and has no kind for others' devices. One of
    ``MULTI_GPU`` does what is right here: it wraps the model in ``DistributedDataParallel`` for one device.
    """
    partial, in_group = state.PartialState, state.DistributedType.MULTI_GPU
    choose_group, set_device = partial._prepare_backend, partial.set_device

    @functools.wraps(choose_group)
    def prepare_backend(self: Any, cpu: bool = False, *args: Any, **options: Any) -> Any:
        backend, kind = choose_group(self, cpu, *args, **options)
        if kind == state.DistributedType.NO and not cpu and "LOCAL_RANK" in os.environ:
            return backend or "gloo", in_group
        return backend, kind

    @functools.wraps(set_device)
    def place(self: Any) -> None:
        if self.device is None and self.distributed_type == in_group:
            self.device = torch.device(NAME, self.local_process_index % len(devices.names()))
            devices.set_current(self.device.index)
        set_device(self)

    partial._prepare_backend, partial.set_device = prepare_backend, place
    partial.default_device = property(lambda self: torch.device(NAME))
