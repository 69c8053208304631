"""NumPy bodies of ops as functions that write into memory that is there, and as functions without checks.

An array that a body makes costs a page fault for each 4 KiB that it has, and a copy where its memory is
planned. Each function here computes bit by bit what the body does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dl4all.graph.host.calls import PreparedCall
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.expressions.branchless import clamp_negative, keep_where
from dl4all.ops.core.kernels.host_work import TENSOR, BodyCall
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.elementwise.declare import Elementwise

Function = Callable[..., object]

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "true_divide": np.divide,
    "neg": np.negative, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "log1p": np.log1p, "expm1": np.expm1,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "abs": np.absolute,
    "maximum": np.maximum, "minimum": np.minimum, "clamp_min": np.maximum, "clamp_max": np.minimum,
}  # fmt: skip
"""Ops whose body is one ufunc on operands of one dtype of floats."""

COMPARISONS: dict[str, np.ufunc] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def out_function(call: PreparedCall) -> Function | None:
    """``function(*operands, out)`` in place of a body; None where there is none."""
    body = call.function
    if not isinstance(body, BodyCall) or body.deferred:
        return None
    *operands, result = (array.view for array in call.arrays)
    if 0 in result.shape:
        return None
    dtypes = {view.dtype for view in operands}
    [dtype] = dtypes if len(dtypes) == 1 else [None]
    if body.name in UFUNCS and dtype is not None and kind_of(dtype) == "f" and dtype == result.dtype:
        if body.arguments.get("alpha", 1) != 1:
            return None
        return _with_constants(UFUNCS[body.name], body, dtype)
    if body.name in COMPARISONS and dtype is not None and kind_of(dtype) == "f" and result.dtype == np.bool_:
        return _with_constants(COMPARISONS[body.name], body, dtype)
    if dtype != result.dtype:
        return None
    if body.name == "clone":
        return copy
    if body.name == "relu":
        return clamp_negative
    if body.name == "relu_backward" and kind_of(dtype) == "f":
        return _relu_backward if all(view.shape == result.shape for view in operands) else None
    return None


def body_function(body: BodyCall, dtypes: Sequence[np.dtype[Any]]) -> Function | None:
    """``function(*operands)`` that returns what the body returns; None where arguments take elements."""
    if body.deferred:
        return None
    function: Function = body.body
    op = REGISTRY.get(body.name)
    operands = body.operands
    plain = len(set(dtypes)) == 1 and kind_of(dtypes[0]) == "f"  # the dtype in which it computes
    if plain and isinstance(op, Elementwise) and not any(op.conditions):
        function = function.__wrapped__  # type: ignore[attr-defined]
        operands = tuple(o if o is TENSOR else np.asarray(o, dtypes[0]) for o in operands)
    if body.arguments:
        function = functools.partial(function, **body.arguments)
    if all(operand is TENSOR for operand in operands):
        return function
    return _inserting(function, operands)


def _inserting(function: Function, operands: Sequence[Any]) -> Function:
    def insert(*arrays: Any) -> object:
        given = iter(arrays)
        return function(*(next(given) if operand is TENSOR else operand for operand in operands))

    return insert


def _with_constants(ufunc: np.ufunc, body: BodyCall, dtype: np.dtype[Any]) -> Function:
    """A ufunc with the numbers among the operands in their places."""
    if all(operand is TENSOR for operand in body.operands):
        return ufunc
    left, right = body.operands
    if left is TENSOR:
        number = np.asarray(right, dtype)
        return lambda x, out: ufunc(x, number, out)
    number = np.asarray(left, dtype)
    return lambda x, out: ufunc(number, x, out)


def copy(x: Any, out: Any) -> None:
    """Write the elements of an array, converted, into another one."""
    out[...] = x


def _relu_backward(grad: Any, output: Any, out: Any) -> None:
    keep_where(grad, ~(output <= 0), out)
