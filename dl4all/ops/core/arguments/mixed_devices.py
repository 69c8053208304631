"""Operands on different devices: an error, but for tensors of the CPU that may go to the others.

Those are tensors without axes, which are as numbers, and data for which nobody named the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler import fallback


class MixedDevices(ArgumentError):
    """The operands of an op live on different devices."""


def mixed_devices(name: str, one: TensorBase, other: TensorBase) -> MixedDevices:
    """The error of an op with two operands that live on different devices."""
    target = other if one.device.is_cpu else one
    return MixedDevices(
        f"[{name}] operands live on different devices, {one.device} and {other.device}; "
        f"move one with .to({str(target.device)!r})"
    )


def on_one_device(name: str, operands: Sequence[Any], *, scalars: bool) -> list[Any]:
    """Operands on one device: some are moved from the CPU to the others, scalars with their history.

    Args:
        name: of the op.
        operands: of which some live on different devices.
        scalars: whether a tensor without axes may be moved, whoever placed it.

    Raises:
        MixedDevices: that leaves several devices.
    """
    tensors = [operand for operand in operands if isinstance(operand, TensorBase)]
    device = tensors[0].device
    if all(tensor.device is device for tensor in tensors):
        return list(operands)
    moving = {
        id(tensor): (scalars and not tensor.shape) or named_cpu.comes_along(tensor)
        for tensor in tensors
        if tensor.device.is_host
    }
    staying = [tensor for tensor in tensors if not moving.get(id(tensor))] or tensors
    target: Any = staying[0].device
    for tensor in staying:
        if tensor.device is not target:
            raise mixed_devices(name, staying[0], tensor)
    return [brought(name, operand, target) if moving.get(id(operand)) else operand for operand in operands]


def brought(name: str, tensor: Any, device: Any) -> Any:
    """A tensor that may be moved, on another device; data for which nobody named the CPU is counted.

    Raises:
        MixedDevices: it has axes, and the setting forbids it.
    """
    if tensor.device is device:
        return tensor
    if tensor.shape and not fallback.brings(name, device, tensor.numel() * tensor.dtype.itemsize):
        raise MixedDevices(
            f"[{name}] operands live on different devices, {tensor.device} and {device}, and by DL4ALL_MIXED "
            f"nothing comes along; move it with .to({str(device)!r})"
        )
    return tensor.to(device)
