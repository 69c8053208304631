"""Options of optimizers: their checks, and what steps take from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import fill_with
from dl4all.scheduler import listeners

NDArray = npt.NDArray[Any]


def number(value: Any) -> float:
    """An option as a float; a tensor of one element may stand for it."""
    if isinstance(value, TensorBase):
        with listeners.suspended():
            return float(value.on_host().item())
    return float(value)


def set_option(group: dict[str, Any], name: str, value: float) -> None:
    """Set a number among the options; a tensor is filled with it, so that all who hold it see the change."""
    held = group[name]
    if isinstance(held, TensorBase):
        fill_with(held, value)
        held.storage.version += 1
    else:
        group[name] = value


def check_not_negative(optimizer: str, group: Mapping[str, Any], *names: str) -> None:
    """Raise unless these options are 0 or more.

    Raises:
        ArgumentError
    """
    for name in names:
        check_single(optimizer, name, group[name])
        if not number(group[name]) >= 0:
            raise ArgumentError(f"[{optimizer}] {name} must be at least 0, got {group[name]}")


def check_single(optimizer: str, name: str, value: Any) -> None:
    """Raise if an option is a tensor of more or less than one element.

    Raises:
        ArgumentError
    """
    if isinstance(value, TensorBase) and value.numel() != 1:
        raise ArgumentError(
            f"[{optimizer}] {name} must be a number or a tensor of one element, got {value.shape}"
        )


def check_decay_rates(optimizer: str, name: str, *values: Any) -> None:
    """Raise unless the decay rates lie in [0, 1).

    Raises:
        ArgumentError
    """
    for value in values:
        check_single(optimizer, name, value)
    if not all(0 <= number(value) < 1 for value in values):
        raise ArgumentError(f"[{optimizer}] {name} must be from 0 to below 1, got {values}")


def check_implementation(optimizer: str, group: Mapping[str, Any]) -> None:
    """Raise for what a step cannot do here, or for options of PyTorch that exclude each other.

    Raises:
        ArgumentError
    """
    if group.get("differentiable"):
        raise ArgumentError(
            f"[{optimizer}] differentiable=True: steps are no part of the graph of gradients; "
            "write the update with operations of tensors, as p = p - lr * g"
        )
    if group.get("foreach") and group.get("fused"):
        raise ArgumentError(f"[{optimizer}] pass foreach=True or fused=True, not both")


def step_constants(group: Mapping[str, Any], *values: str | float) -> tuple[float | int, ...]:
    """The constants of a step: the gradient's sign, then numbers, and options as floats by their names."""
    sign = -1.0 if group["maximize"] else 1.0
    return (sign, *(number(group[value]) if isinstance(value, str) else value for value in values))


def decay_constants(group: Mapping[str, Any]) -> tuple[float, float]:
    """The weight decay of the gradient, and the factor of the parameter where decay is decoupled from it."""
    decay = number(group["weight_decay"])
    if group["decoupled_weight_decay"]:
        return 0.0, 1.0 - number(group["lr"]) * decay
    return decay, 1.0


def as_float32(value: float) -> float:
    """A number as it is in a state of PyTorch, whose scalars are float32."""
    return float(np.float32(value))
