"""Comparisons, tests of elements, logic, extrema of two tensors, and choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.pytorch.device.dispatch.registration import declare

COMPARISONS: dict[str, Callable[..., Any]] = {
    f"{name}.{kind}": getattr(ops, name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
}

TESTS: dict[str, Callable[..., Any]] = {
    "isnan": ops.isnan,
    "isinf": ops.isinf,
    "isneginf": ops.isneginf,
    "isposinf": ops.isposinf,
    "signbit": ops.signbit,
}

LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": ops.logical_and,
    "logical_or": ops.logical_or,
    "logical_xor": ops.logical_xor,
    "logical_not": ops.logical_not,
}

EXTREMA: dict[str, Callable[..., Any]] = {
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "fmax": ops.fmax,
    "fmin": ops.fmin,
    "clamp": ops.clamp,
    "clamp.Tensor": ops.clamp,
    "clamp_min": ops.clamp_min,
    "clamp_min.Tensor": ops.clamp_min,
    "clamp_max": ops.clamp_max,
    "clamp_max.Tensor": ops.clamp_max,
}

CHOICES: dict[str, Callable[..., Any]] = {
    "heaviside": ops.heaviside,
    "copysign.Tensor": ops.copysign,
    "copysign.Scalar": ops.copysign,
}

for _name, _function in (COMPARISONS | TESTS | LOGIC | EXTREMA | CHOICES).items():
    declare(_name, _function, pointwise=True)
