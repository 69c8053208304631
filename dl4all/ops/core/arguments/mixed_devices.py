"""Operands on different devices: an error, but for a tensor without axes on the CPU, which is as a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.tensor_base import TensorBase


class MixedDevices(ArgumentError):
    """The operands of an op live on different devices."""


def mixed_devices(name: str, one: TensorBase, other: TensorBase) -> MixedDevices:
    """The error of an op with two operands that live on different devices."""
    return MixedDevices(
        f"[{name}] operands live on different devices, {one.device} and {other.device}; "
        f"move one with .to({str(one.device)!r})"
    )


def scalars_moved(name: str, operands: Sequence[Any]) -> list[Any]:
    """Operands on one device: those without axes are moved from the CPU to the others, with their history.

    Raises:
        MixedDevices: that leaves several devices.
    """
    tensors = [operand for operand in operands if isinstance(operand, TensorBase)]
    device = tensors[0].device
    if all(tensor.device is device for tensor in tensors):
        return list(operands)
    scalars = {id(tensor) for tensor in tensors if not tensor.shape and tensor.device.is_host}
    others = [tensor for tensor in tensors if id(tensor) not in scalars] or tensors
    for other in others:
        if other.device is not others[0].device:
            raise mixed_devices(name, others[0], other)
    return [operand.to(others[0].device) if id(operand) in scalars else operand for operand in operands]
