"""Files of safetensors, read to ``dlall``."""

from __future__ import annotations

import functools
from typing import Any

import torch

from dl4all.pytorch.device.devices import NAME


def read_to_device(module: Any) -> None:
    """Read what is meant for ``dlall`` to the CPU first: the reader knows devices by their names."""
    own = module.load_file

    @functools.wraps(own)
    def load_file(filename: Any, device: Any = "cpu", **options: Any) -> dict[str, torch.Tensor]:
        if torch.device(device).type != NAME:
            tensors: dict[str, torch.Tensor] = own(filename, device=device, **options)
            return tensors
        return {name: tensor.to(device) for name, tensor in own(filename, **options).items()}

    module.load_file = load_file
