"""Sorting and counting. The order is found on the host; values, and their gradients, stay on the device."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.gather_scatter import gather, index_select
from dl4all.ops.indexing.indices import NDArray, integer_indices
from dl4all.ops.memory.views import flatten, reshape

T = TypeVar("T", bound=TensorBase)


class Sorted(NamedTuple):
    """Elements in order and where they were."""

    values: Any
    indices: Any


@export("dl", "Tensor")
@reads("input")
def sort(input: T, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """The elements along axis `dim` in order; equal ones keep theirs, nan counts as the largest.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        descending: the largest first.
        stable: has no effect; it always is.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.sort(dl.tensor([0.3, 0.1, 0.2])).indices.tolist()
        [1, 2, 0]
    """
    return _taken(input, _order("sort", input, dim, descending), dim)


@export("dl", "Tensor")
@reads("input")
def argsort(input: T, dim: int = -1, descending: bool = False, stable: bool = False) -> T:
    """Where the elements along axis `dim` are in their order: the indices of :func:`sort`."""
    order = _order("argsort", input, dim, descending)
    made: T = from_host(type(input).result_class, order, input.device, copy=False)
    return made


def first_places(name: str, input: T, k: int, dim: int, largest: bool) -> Sorted:
    """The first `k` of :func:`sort`."""
    order = _order(name, input, dim, largest)
    place = strides.axis(name, dim, len(input.shape))
    return _taken(input, np.take(order, np.arange(k), place), dim)


def _order(name: str, input: TensorBase, dim: int, descending: bool) -> NDArray:
    array = np.atleast_1d(input.on_host())
    place = strides.axis(name, dim, max(len(input.shape), 1))
    if descending:
        # Sorted from the back and turned round, not by -array: bool has none, and uint8 would wrap around.
        from_back = np.argsort(np.flip(array, place), axis=place, kind="stable")
        order = array.shape[place] - 1 - np.flip(from_back, place)
    else:
        order = np.argsort(array, axis=place, kind="stable")
    found: NDArray = order.reshape(input.shape).astype(np.int64, order="C", copy=False)
    return found


def _taken(input: T, order: NDArray, dim: int) -> Sorted:
    order = np.asarray(order, order="C")
    values = gather(input, dim, order)
    return Sorted(values, from_host(type(input).result_class, order, input.device, copy=False))


class TopK(NamedTuple):
    """The largest values and where they were."""

    values: Any
    indices: Any


@export("dl", "Tensor")
@reads("input")
def topk(input: T, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The `k` largest elements along axis `dim`, the largest first; equal ones in their order.

    nan counts as the largest.

    Args:
        input: a tensor of any shape.
        k: how many, at most the axis's size.
        dim: the axis.
        largest: False for the smallest elements, the smallest first.
        sorted: has no effect; they always are.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape but for size `k` along `dim`, on the
        input's device.

    Raises:
        ArgumentError: there is no such axis, or it has fewer than `k` elements.

    Example:
        >>> import dl4all as dl
        >>> dl.topk(dl.tensor([0.1, 0.7, 0.2]), 2).indices.tolist()
        [1, 2]
    """
    if not input.shape:
        return TopK(*(reshape(found, ()) for found in topk(reshape(input, 1), k, dim, largest)))
    place = strides.axis("topk", dim, len(input.shape))
    if not 0 <= k <= input.shape[place]:
        raise ArgumentError(
            f"[topk] k must be from 0 to {input.shape[place]} for shape {input.shape}, got {k}"
        )
    return TopK(*first_places("topk", input, k, place, largest))


@export("dl", "Tensor")
@reads("input")
def unique(
    input: T,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The elements that differ, in order; with `dim`, the places along that axis that do.

    Args:
        input: a tensor of any dtype.
        sorted: has no effect; they always are.
        return_inverse: also, for each element, where it is among those that differ.
        return_counts: also, how often each of them comes.
        dim: the axis.

    Returns:
        A tensor, or a tuple with what was asked for behind it. The gradient of an element goes to the first
        of those that equal it.
    """
    axis = None if dim is None else strides.axis("unique", dim, len(input.shape))
    _, first, inverse, counts = np.unique(
        input.on_host(),
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=axis,
        equal_nan=False,
    )
    source = flatten(input) if axis is None else input
    made: list[Any] = [index_select(source, axis or 0, first)]
    inverse = inverse.reshape(input.shape if axis is None else (input.shape[axis],))
    asked = [array for array, wanted in ((inverse, return_inverse), (counts, return_counts)) if wanted]
    for array in asked:
        placed = from_host(type(input).result_class, array.astype(np.int64), input.device, copy=True)
        made.append(placed)
    return tuple(made) if len(made) > 1 else made[0]


@export("dl")
@reads("sorted_sequence", "values")
def searchsorted(sorted_sequence: T, values: Any, *, right: bool = False) -> T:
    """Where values would have to be put into a sequence for it to stay in order, along the last axis.

    Args:
        sorted_sequence: rising along the last axis; 1-d, or of the values' shape but for that axis.
        values: a tensor or a number.
        right: behind equal elements instead of before them.

    Returns:
        int64, of the values' shape.

    Raises:
        ArgumentError: the shapes do not fit.
    """
    sequence = sorted_sequence.on_host()
    wanted = values.on_host() if isinstance(values, TensorBase) else np.asarray(values)
    if sequence.ndim != 1 and sequence.shape[:-1] != wanted.shape[:-1]:
        raise ArgumentError(
            f"[searchsorted] shapes {sequence.shape} and {wanted.shape} must be equal but for the last axis"
        )
    side: Literal["left", "right"] = "right" if right else "left"
    if sequence.ndim == 1:
        found = np.asarray(np.searchsorted(sequence, wanted, side))
    else:
        rows = math.prod(wanted.shape[:-1])
        pairs = zip(sequence.reshape(rows, -1), wanted.reshape(rows, -1), strict=True)
        found = np.array([np.searchsorted(row, value, side) for row, value in pairs]).reshape(wanted.shape)
    made: T = from_host(
        type(sorted_sequence).result_class, found.astype(np.int64), sorted_sequence.device, copy=False
    )
    return made


@export("dl", "Tensor")
@reads("input", "weights")
def bincount(input: T, weights: T | None = None, minlength: int = 0) -> T:
    """How often each int from 0 on comes in a 1-d tensor, or the sum of the weights that it comes with.

    Raises:
        ArgumentError: an int is negative, or the tensor is not 1-d.
        DTypeError: the elements are no integers.
    """
    numbers = integer_indices("bincount", input)
    if numbers.ndim != 1 or (numbers.size and numbers.min() < 0):
        raise ArgumentError("[bincount] expected a 1-d tensor of ints from 0 on")
    if weights is not None and weights.shape != numbers.shape:
        raise ArgumentError(f"[bincount] the weights must have shape {numbers.shape}, got {weights.shape}")
    if weights is not None and weights.dtype.kind == "b":
        raise DTypeError("[bincount] weights must be numbers, got bool")
    given = None if weights is None else weights.on_host()
    counts = np.bincount(numbers, given, minlength)
    dtype = np.int64 if weights is None else np.float32 if weights.dtype == np.float32 else np.float64
    made: T = from_host(type(input).result_class, counts.astype(dtype), input.device, copy=False)
    return made
