"""Operators that reduce axes, or go along one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.registry import operator
from dl4all.ops.core.dtypes import kind_of
from dl4all.tensor.creation import full_like, ones_like, zeros_like

REDUCED: dict[str, Any] = {
    "ReduceSum": functions.sum,
    "ReduceMean": functions.mean,
    "ReduceMax": functions.amax,
    "ReduceMin": functions.amin,
    "ReduceL1": lambda x, dim, keepdim: functions.abs(x).sum(dim, keepdim=keepdim),
    "ReduceL2": lambda x, dim, keepdim: functions.sqrt((x * x).sum(dim, keepdim=keepdim)),
    "ReduceLogSum": lambda x, dim, keepdim: functions.log(x.sum(dim, keepdim=keepdim)),
    "ReduceLogSumExp": functions.logsumexp,
    "ReduceSumSquare": lambda x, dim, keepdim: (x * x).sum(dim, keepdim=keepdim),
    "ReduceProd": lambda x, dim, keepdim: _product(x, dim, keepdim),
}
"""Functions of a tensor, axes, and whether they stay with size 1."""

NUMPY: dict[str, Any] = {
    "ReduceSum": np.sum,
    "ReduceProd": np.prod,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceMean": np.mean,
}


def _product(x: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    for axis in sorted(dim, reverse=True):
        x = x.prod(axis, keepdim=keepdim)
    return x


def _extreme_of_nothing(call: Call, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    """The largest or smallest of no elements: the smallest or largest that there is."""
    largest = call.node.op_type == "ReduceMax"
    if kind_of(x.dtype) == "f":
        value: Any = -math.inf if largest else math.inf
    elif x.dtype == np.bool_:
        value = not largest
    else:
        value = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
    sizes = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
    return full_like(call.tensor(np.zeros(sizes, x.dtype)), value)


def _axes(call: Call, x: Any, axes: Any) -> tuple[int, ...]:
    given = call.axes(axes)
    if not given:
        return () if call.flag("noop_with_empty_axes") else tuple(range(len(x.shape)))
    return tuple(axis % len(x.shape) for axis in given)


def _reduce_on_host(call: Call, x: Any, axes: Any = None) -> Any:
    name = call.node.op_type
    if name not in NUMPY:
        return reduce(call, x, axes)
    chosen = _axes(call, x, axes)
    return np.asarray(NUMPY[name](x, axis=chosen, keepdims=call.flag("keepdims", True)), x.dtype)


@operator(*REDUCED, on_host=_reduce_on_host, reads=(1,))
def reduce(call: Call, x: Any, axes: Any = None) -> Any:
    """The result has the input's dtype."""
    x, keep, name = call.tensor(x), call.flag("keepdims", True), call.node.op_type
    chosen, dtype = _axes(call, x, axes), x.dtype
    if name in ("ReduceMax", "ReduceMin"):
        if any(x.shape[axis] == 0 for axis in chosen):
            return _extreme_of_nothing(call, x, chosen, keep)
        x = x.to("uint8") if dtype == np.bool_ else x
    elif kind_of(dtype) != "f" and name not in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"):
        x = x.to("float64")  # of integers
    if not chosen:  # each element is a group of its own
        chosen, keep, x = (x.ndim,), False, x.unsqueeze(-1)
    result = REDUCED[name](x, chosen, keep)
    return result if result.dtype == dtype else result.to(dtype)


@operator("CumSum", "CumProd", reads=(1,))
def cumulative(call: Call, x: Any, axis: Any) -> Any:
    x, dim = call.tensor(x), int(call.number(axis))
    sums = call.node.op_type == "CumSum"
    x = functions.flip(x, (dim,)) if call.flag("reverse") else x
    if call.flag("exclusive"):  # begins with the result of nothing, and leaves the last element out
        shifted = [0] * (2 * x.ndim)
        at = 2 * (x.ndim - 1 - dim % x.ndim)
        shifted[at : at + 2] = 1, -1
        x = F.pad(x, shifted, value=0 if sums else 1)
    y = (functions.cumsum if sums else functions.cumprod)(x, dim).to(x.dtype)
    return functions.flip(y, (dim,)) if call.flag("reverse") else y


def _rows_from(call: Call, x: Any) -> tuple[Any, int]:
    """Before opset 13 an axis and all after it are one."""
    if call.opset >= 13:
        return x, call.get("axis", -1)
    axis = call.get("axis", 1) % max(x.ndim, 1)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), 1


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call, x: Any) -> Any:
    x = call.tensor(x)
    rows, axis = _rows_from(call, x)
    if call.node.op_type == "Hardmax":
        largest = functions.argmax(rows, dim=axis, keepdim=True)
        y = functions.scatter(zeros_like(rows), axis, largest, 1.0)
    else:
        y = (functions.softmax if call.node.op_type == "Softmax" else functions.log_softmax)(rows, dim=axis)
    return y if y.shape == x.shape else y.reshape(x.shape)


@operator("LpNormalization")
def lp_normalization(call: Call, x: Any) -> Any:
    """Vectors over their norm, where that is not 0."""
    x, axis = call.tensor(x), call.get("axis", -1)
    if call.get("p", 2) == 1:
        norm = functions.abs(x).sum(axis, keepdim=True)
    else:
        norm = functions.sqrt((x * x).sum(axis, keepdim=True))
    return functions.where(norm == 0, zeros_like(x), x / functions.where(norm == 0, ones_like(norm), norm))
