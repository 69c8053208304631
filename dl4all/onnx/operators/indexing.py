"""Operators that take elements by their indices, put them, or find them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.registry import SAME, operator

REDUCTIONS: dict[str, Any] = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
"""The names of PyTorch's reductions."""


def wrapped(indices: Any, size: int) -> Any:
    """Indices of which the negative ones count from the end."""
    if is_array(indices):
        return np.where(indices < 0, indices + size, indices)
    indices = indices.long()
    return functions.where(indices < 0, indices + size, indices)


def _gather_on_host(call: Call, x: Any, indices: Any) -> Any:
    return np.asarray(np.take(x, indices, call.get("axis", 0)))


@operator("Gather", on_host=_gather_on_host)
def gather(call: Call, x: Any, indices: Any) -> Any:
    """Slices of an axis, which the axes of the indices take the place of."""
    x, axis = call.tensor(x), call.get("axis", 0)
    axis, shape = axis % x.ndim, tuple(indices.shape)
    flat = call.tensor(wrapped(indices, x.shape[axis])).reshape(-1)
    rows = functions.index_select(x, axis, flat)
    return rows.reshape(*x.shape[:axis], *shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(call: Call, x: Any, indices: Any) -> Any:
    x, axis = call.tensor(x), call.get("axis", 0)
    return functions.gather(x, axis, call.tensor(wrapped(indices, x.shape[axis])))


def _flat_indices(call: Call, x: Any, indices: Any, batch: int = 0) -> Any:
    """The positions of slices along one axis that stands for all that tuples of indices go over."""
    depth = indices.shape[-1]
    sizes = x.shape[batch : batch + depth]
    strides = [math.prod(sizes[i + 1 :]) for i in range(depth)]
    if is_array(indices):
        parts = [wrapped(indices[..., i], sizes[i]) * strides[i] for i in range(depth)]
        total = sum(parts) if parts else np.zeros(indices.shape[:-1], np.int64)
        return call.tensor(np.asarray(total, np.int64))
    total = None
    for i in range(depth):
        part = wrapped(indices[..., i], sizes[i]) * strides[i]
        total = part if total is None else total + part
    return total


@operator("GatherND")
def gather_nd(call: Call, x: Any, indices: Any) -> Any:
    """Slices at tuples of indices, after axes that both have."""
    x, batch = call.tensor(x), call.get("batch_dims", 0)
    depth, lead = indices.shape[-1], math.prod(x.shape[:batch])
    positions = _flat_indices(call, x, indices, batch)
    inner = tuple(x.shape[batch + depth :])
    count = math.prod(x.shape[batch : batch + depth])
    rows = x.reshape(lead * count, *inner)
    flat = positions.reshape(lead, -1)
    if lead > 1:
        flat = flat + call.tensor(np.arange(lead)[:, None] * count)
    return functions.index_select(rows, 0, flat.reshape(-1)).reshape(*indices.shape[:-1], *inner)


@operator("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    x, updates, axis = call.tensor(x), call.tensor(updates), call.get("axis", 0)
    positions = call.tensor(wrapped(indices, x.shape[axis]))
    reduction = call.choice("reduction", "none", tuple(REDUCTIONS))
    if reduction == "none":
        return functions.scatter(x, axis, positions, updates)
    return functions.scatter_reduce(x, axis, positions, updates, REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_nd(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    """Slices put at tuples of indices, or added, multiplied and so on to those that are there."""
    x, updates = call.tensor(x), call.tensor(updates)
    positions = _flat_indices(call, x, indices).reshape(-1)
    depth = indices.shape[-1]
    count, inner = math.prod(x.shape[:depth]), math.prod(x.shape[depth:])
    rows, new = x.reshape(count, inner), updates.reshape(-1, inner)
    index = functions.broadcast_to(positions.unsqueeze(1), (len(new), inner))
    reduction = call.choice("reduction", "none", tuple(REDUCTIONS))
    if reduction == "none":
        result = functions.scatter(rows, 0, index, new)
    else:
        result = functions.scatter_reduce(rows, 0, index, new, REDUCTIONS[reduction])
    return result.reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(call: Call, cache: Any, update: Any, starts: Any = None) -> Any:
    """A cache with new rows along an axis, from where each batch says; a circular one goes round."""
    cache, update, axis = call.tensor(cache), call.tensor(update), call.get("axis", -2)
    axis %= cache.ndim
    count, size = update.shape[axis], cache.shape[axis]
    first = np.zeros(cache.shape[0], np.int64) if starts is None else starts
    first = call.tensor(first).long().reshape(-1, *[1] * (cache.ndim - 1))
    steps = np.arange(count).reshape([count if i == axis else 1 for i in range(cache.ndim)])
    positions = first + call.tensor(steps)
    if call.choice("mode", "linear", ("circular",)) == "circular":
        positions = functions.remainder(positions, size)
    return functions.scatter(cache, axis, functions.broadcast_to(positions, tuple(update.shape)), update)


@operator("NonZero", on_host=lambda call, x: np.array(np.nonzero(np.atleast_1d(x)), np.int64))
def nonzero(call: Call, x: Any) -> Any:
    call.waits()
    return functions.nonzero(call.tensor(x)).T


@operator("Compress", reads=(1,))
def compress(call: Call, x: Any, condition: Any) -> Any:
    x, kept = call.tensor(x), np.flatnonzero(call.host(condition))
    axis = call.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return functions.index_select(x, axis, call.tensor(kept))


@operator("OneHot", reads=(1,))
def one_hot(call: Call, indices: Any, depth: Any, values: Any) -> Any:
    """Vectors of an off value, with an on value where an index says."""
    count = int(call.number(depth))
    off, on = (call.tensor(values)[i] for i in (0, 1))
    axis = call.get("axis", -1) % (len(indices.shape) + 1)
    positions = call.tensor(wrapped(indices, count)).long().unsqueeze(axis)
    steps = np.arange(count).reshape([count if i == axis else 1 for i in range(positions.ndim)])
    return functions.where(positions == call.tensor(steps), on, off)


@operator("TopK", reads=(1,))
def top_k(call: Call, x: Any, count: Any = None) -> Any:
    k = call.get("k") if count is None else int(call.number(count))
    values, positions = functions.topk(
        call.tensor(x), k, dim=call.get("axis", -1), largest=call.flag("largest", True), sorted=True
    )
    return values, positions


@operator("ArgMax", "ArgMin")
def arg_extreme(call: Call, x: Any) -> Any:
    x, axis, keep = call.tensor(x), call.get("axis", 0), call.flag("keepdims", True)
    function = functions.argmax if call.node.op_type == "ArgMax" else functions.argmin
    if call.flag("select_last_index"):
        return x.shape[axis] - 1 - function(functions.flip(x, (axis,)), dim=axis, keepdim=keep)
    return function(x, dim=axis, keepdim=keep)


@operator("Unique", on_host=SAME)
def unique(call: Call, x: Any) -> Any:
    """Distinct elements or slices, the first index of each, the indices of all, and counts: on the host."""
    axis, array = call.get("axis"), call.host(x)
    values, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)  # whose shape NumPy 2.0 changed
    if not call.flag("sorted", True):
        order = np.argsort(first)
        positions = np.argsort(order)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        inverse = positions[inverse]
    result = values if is_array(x) else call.tensor(values)
    return result, *(part.astype(np.int64) for part in (first, inverse, counts))
