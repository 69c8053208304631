"""Scans along an axis: running sums, products and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import dtype_name
from dl4all.tensor.tensor import Tensor


def _scan(function: Callable[..., Any]) -> Callable[..., Any]:
    def scan(x: Tensor, dim: int, *, dtype: Any = None) -> Any:
        return function(x, dim, dtype=dtype_name(dtype))

    return scan


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def scan(x: Tensor, dim: int) -> Any:
        return tuple(function(x, dim))

    return scan


declare("cumsum", _scan(ops.cumsum))
declare("cumprod", _scan(ops.cumprod))
declare("cummax", _extreme(ops.cummax))
declare("cummin", _extreme(ops.cummin))
declare("logcumsumexp", ops.logcumsumexp)
declare("_logcumsumexp", ops.logcumsumexp)
