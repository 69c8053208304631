"""Batch normalisation of the host as elementwise calls, after what is computed once for each channel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dl4all.graph.host.calls import ArrayAt, PreparedCall
from dl4all.graph.host.launches import is_launched
from dl4all.graph.ir.graph import Graph, GraphBuffer
from dl4all.ops.core.kernels.host_work import TENSOR, ArrayView, BodyCall
from dl4all.ops.core.tensor_base import contiguous_strides


def expanded(graph: Graph, calls: Sequence[PreparedCall]) -> tuple[Graph, list[PreparedCall]]:
    """The calls with batch normalisation taken apart, and the graph with the buffers that this takes.

    What a compiled kernel does stays whole.
    """
    buffers = dict(graph.buffers)
    made: list[PreparedCall] = []
    for call in calls:
        body = call.function
        if (
            isinstance(body, BodyCall)
            and body.name in _EXPANSIONS
            and _can_expand(call)
            and not is_launched(call)
        ):
            made += _EXPANSIONS[body.name](call, body, buffers)
        else:
            made.append(call)
    return replace(graph, buffers=buffers), made


def _can_expand(call: PreparedCall) -> bool:
    shape = call.arrays[-1].view.shape
    return len({array.view.dtype for array in call.arrays}) == 1 and 0 not in shape


@dataclass(frozen=True)
class _Scale:
    """``1 / sqrt(var + eps)``, times a weight if there is one."""

    eps: float

    def __call__(self, *arrays: Any) -> None:
        var, *weight, out = arrays
        scale = 1 / np.sqrt(var + np.asarray(self.eps, var.dtype))
        out[...] = scale * weight[0] if weight else scale


def _apply(call: PreparedCall, body: BodyCall, buffers: dict[int, GraphBuffer]) -> Iterator[PreparedCall]:
    """``(x - mean) * scale + bias``."""
    given = iter(call.arrays)
    x, mean, var, weight, bias = (next(given) if operand is TENSOR else None for operand in body.operands)
    out = call.arrays[-1]
    assert x is not None
    assert mean is not None
    assert var is not None
    scale = _temporary(buffers, var.view)
    operands = (var, scale) if weight is None else (var, weight, scale)
    yield _call("batch_norm_scale", _Scale(body.arguments["eps"]), operands)
    rank = len(x.view.shape)
    yield _call("sub", np.subtract, (x, _along_channels(mean, rank), out))
    yield _call("mul", np.multiply, (out, _along_channels(scale, rank), out))
    if bias is not None:
        yield _call("add", np.add, (out, _along_channels(bias, rank), out))


@dataclass(frozen=True)
class _Factors:
    """The factors and terms of :func:`_backward` in each channel: shape (3, C)."""

    eps: float
    count: int

    def __call__(self, *arrays: Any) -> None:
        var, sums, *weight, out = arrays
        deviation = 1 / np.sqrt(var + np.asarray(self.eps, var.dtype))
        out[0] = deviation * weight[0] if weight else deviation
        out[1] = sums[0] / self.count
        out[2] = sums[1] * deviation / self.count


def _backward(call: PreparedCall, body: BodyCall, buffers: dict[int, GraphBuffer]) -> Iterator[PreparedCall]:
    """``scale * (grad - mean_term - x_factor * (x - mean))``."""
    given = iter(call.arrays)
    grad, x, mean, var, sums, weight = (
        next(given) if operand is TENSOR else None for operand in body.operands
    )
    out = call.arrays[-1]
    assert grad is not None
    assert x is not None
    assert mean is not None
    assert var is not None
    assert sums is not None
    shape, dtype = x.view.shape, x.view.dtype
    channels = var.view._replace(shape=(3, *var.view.shape))
    factors = _temporary(buffers, channels)
    operands = (var, sums, factors) if weight is None else (var, sums, weight, factors)
    count = math.prod(shape) // max(shape[1], 1)
    yield _call("batch_norm_factors", _Factors(body.arguments["eps"], count), operands)
    row = shape[1] * dtype.itemsize
    scale, mean_term, x_factor = (
        _along_channels(
            ArrayAt(factors.buffer, ArrayView((shape[1],), dtype, (dtype.itemsize,), i * row)), len(shape)
        )
        for i in range(3)
    )
    centered = _temporary(buffers, x.view)
    yield _call("sub", np.subtract, (x, _along_channels(mean, len(shape)), centered))
    yield _call("mul", np.multiply, (centered, x_factor, centered))
    yield _call("sub", np.subtract, (grad, mean_term, out))
    yield _call("sub", np.subtract, (out, centered, out))
    yield _call("mul", np.multiply, (out, scale, out))


_EXPANSIONS = {"batch_norm_apply": _apply, "batch_norm_backward": _backward}


def _call(name: str, function: Any, arrays: tuple[ArrayAt, ...]) -> PreparedCall:
    return PreparedCall(name, function, arrays, (*(False for _ in arrays[:-1]), True))


def _temporary(buffers: dict[int, GraphBuffer], view: ArrayView) -> ArrayAt:
    """A contiguous array in a new buffer."""
    strides = tuple(stride * view.dtype.itemsize for stride in contiguous_strides(view.shape))
    number = max(buffers) + 1
    buffers[number] = GraphBuffer(number, math.prod(view.shape) * view.dtype.itemsize, "temporary")
    return ArrayAt(number, ArrayView(view.shape, view.dtype, strides, 0))


def _along_channels(array: ArrayAt, rank: int) -> ArrayAt:
    """A vector with an element for each channel, to broadcast with (N, C, ...)."""
    [size], [stride] = array.view.shape, array.view.strides
    shape, strides = (size, *(1,) * (rank - 2)), (stride, *(0,) * (rank - 2))
    return array._replace(view=array.view._replace(shape=shape, strides=strides))
