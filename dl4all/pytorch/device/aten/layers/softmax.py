"""Softmax and its logarithm, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import dtype_name
from dl4all.tensor.tensor import Tensor


def _as(x: Tensor, dtype: str | None) -> Any:
    return x if dtype is None or x.dtype == dtype else ops.cast(x, dtype)


def _forward(function: Callable[..., Any]) -> Callable[..., Any]:
    def softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
        return function(_as(x, "float32" if half_to_float else None), dim)

    return softmax


def _backward(function: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(grad: Tensor, result: Tensor, dim: int, input_dtype: Any) -> Any:
        return _as(function(grad, result, dim), dtype_name(input_dtype))

    return gradient


def safe_softmax(x: Tensor, dim: int, dtype: Any = None) -> Any:
    """Softmax, but 0 instead of nan where all elements are -inf."""
    x = _as(x, dtype_name(dtype))
    if 0 in x.shape:
        return ops.softmax(x, dim)
    return ops.where(ops.eq(ops.amax(x, dim, keepdim=True), -math.inf), 0.0, ops.softmax(x, dim))


declare("_softmax", _forward(ops.softmax))
declare("_log_softmax", _forward(ops.log_softmax))
declare("_safe_softmax", safe_softmax)
declare("_softmax_backward_data", _backward(ops.softmax_backward))
declare("_log_softmax_backward_data", _backward(ops.log_softmax_backward))
