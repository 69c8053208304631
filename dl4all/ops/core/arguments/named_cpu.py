"""Tensors that were put on the CPU by name, and so stay there where they meet tensors of another device.

Other tensors of the CPU lie there because their contents came from the host's memory, as arrays of NumPy and
batches made of them do: they come along. A text such as ``"cpu"`` names the CPU, and so does a device that is
the default. A :class:`~dl4all.scheduler.device.device.Device` does once the program has asked for
``dl.device("cpu")``: before, it is the ``x.device`` of such data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.device import current
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.name import cpu_use


def note(tensor: TensorBase, *devices: Any) -> None:
    """Remember of a tensor if one of the devices, as a caller gave them, has put it on the CPU by name."""
    if tensor.device.is_cpu and any(map(_names_cpu, devices)):
        tensor.storage.named_cpu = True


def _names_cpu(device: Any) -> bool:
    if device is None or (isinstance(device, str) and device == "auto"):
        preferred = current.chosen()
        return preferred is not None and preferred.is_cpu
    if isinstance(device, str):
        return device.startswith("cpu")
    names_it = isinstance(device, Device) and device.is_cpu
    return names_it and (cpu_use.is_named or device.name != "cpu")


def pass_on(operands: Iterable[Any], result: TensorBase) -> None:
    """Remember of a new tensor of the CPU if one of those it was computed from was put there by name."""
    for operand in operands:  # a comprehension would be one more call
        if isinstance(operand, TensorBase) and operand.storage.named_cpu:
            result.storage.named_cpu = True
            return


def comes_along(tensor: TensorBase) -> bool:
    """Whether a tensor may be taken to another device: nobody named the CPU for it, and it has no history."""
    requires_grad = tensor.grad_meta is not None and tensor.grad_meta.requires_grad
    return tensor.device.is_cpu and not tensor.storage.named_cpu and not requires_grad
