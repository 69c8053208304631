"""Weights as lengths times directions, of ``weight_norm``, and their gradients."""

from __future__ import annotations

from typing import Any

from dl4all import ops
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative


def _other_axes(v: Any, dim: int) -> tuple[int, ...]:
    """
    Raises:
        NotNative: lengths are not those of slices along the first or the last axis.
    """
    if len(v.shape) < 2 or dim not in (0, len(v.shape) - 1) or 0 in v.shape:
        raise NotNative(f"lengths along axis {dim} of {v.shape}")
    return tuple(axis for axis in range(len(v.shape)) if axis != dim)


def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """The weights, and the lengths of the slices of `v`."""
    norms = ops.norm(v, 2, _other_axes(v, dim), True)
    return ops.mul(v, ops.true_divide(g, norms)), norms


def weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """The gradients of directions and lengths."""
    along = ops.true_divide(ops.sum(ops.mul(grad, v), _other_axes(v, dim), True), norms)
    unit = ops.true_divide(v, norms)
    grad_v = ops.mul(ops.true_divide(g, norms), ops.sub(grad, ops.mul(unit, along)))
    return grad_v, along


declare("_weight_norm_interface", weight_norm)
declare("_weight_norm_interface_backward", weight_norm_backward)
