"""Scatter by index or mask: index_copy, index_fill, index_put, masked_scatter and scatter_reduce."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.functions.host import to_device_of
from dl4all.functions.indexing.view_scatter import copy_for
from dl4all.ops.core import strides, tape
from dl4all.ops.core.arguments.mixed_devices import on_one_device
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar, Shape, TensorBase, contiguous_strides
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add, clone, true_divide
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import floor_divide
from dl4all.ops.indexing import advanced_indexing, device_indices, gather_scatter
from dl4all.ops.indexing.assignment import setitem
from dl4all.ops.indexing.combined_rows import combined_rows, combines_on_host
from dl4all.ops.indexing.concatenation import stack
from dl4all.ops.indexing.gather_scatter import (
    bool_mask,
    expanded_number,
    indices_along,
    scatter_add,
    source_part,
)
from dl4all.ops.indexing.indices import (
    Indices,
    NDArray,
    checked_indices,
    flat_indices,
    indices_into,
    integer_indices,
)
from dl4all.ops.indexing.rows import put_rows, take_rows, take_rows_backward
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import expand, flatten, movedim, permute, reshape
from dl4all.ops.reduce.extrema import amax, amin

Reduction = Literal["sum", "prod", "mean", "amax", "amin"]
REDUCTIONS = get_args(Reduction)
NEUTRAL_ELEMENTS = {"prod": 1.0, "amax": -math.inf, "amin": math.inf}


# Slices along an axis


@export("dl", "Tensor", "Tensor_", out=True)
@reads("index")
def index_copy(input: Array, dim: int, index: Array | npt.ArrayLike, source: Array) -> Array:
    """A copy of the input with the slices of `source` along axis `dim` at given indices.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: an int for each slice of `source`; the last one of equal indices counts.
        source: of the input's shape but for `dim`, and of its dtype.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError, DTypeError: the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.index_copy(dl.zeros(3), 0, dl.tensor([2, 0]), dl.tensor([5.0, 6.0])).tolist()
        [6.0, 0.0, 5.0]
    """
    if not input.shape:
        return reshape(index_copy(reshape(input, 1), dim, index, reshape(source, -1)), ())
    axis = strides.axis("index_copy", dim, len(input.shape))
    indices, _ = indices_into("index_copy", index, input.shape[axis], input)
    shape = (*input.shape[:axis], len(indices), *input.shape[axis + 1 :])
    if source.shape != shape:
        raise ShapeError(f"[index_copy] the source must have shape {shape}, got {source.shape}")
    if source.dtype != input.dtype:
        raise DTypeError(f"[index_copy] the source must be of {input.dtype}, got {source.dtype}")
    return _put_slices(input, axis, indices, source)


@export("dl", "Tensor", "Tensor_")
@reads("index")
def index_fill(input: Array, dim: int, index: Array | npt.ArrayLike, value: Array | Scalar) -> Array:
    """A copy of the input with a number at given indices along axis `dim`.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints.
        value: a number, or a tensor without axes.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError: the value has axes.

    Example:
        >>> import dl4all as dl
        >>> dl.index_fill(dl.zeros(3), 0, dl.tensor([2, 0]), 5.0).tolist()
        [5.0, 0.0, 5.0]
    """
    if not input.shape:
        return reshape(index_fill(reshape(input, 1), dim, index, value), ())
    axis = strides.axis("index_fill", dim, len(input.shape))
    indices, _ = indices_into("index_fill", index, input.shape[axis], input, negative=True)
    shape = (*input.shape[:axis], len(indices), *input.shape[axis + 1 :])
    return _put_slices(input, axis, indices, _full("index_fill", input, value, shape))


def _put_slices(input: Array, axis: int, indices: Indices, source: Array) -> Array:
    if 0 in source.shape:
        return clone(input)
    axis_first = movedim(input, axis, 0)
    inner = math.prod(axis_first.shape[1:])
    rows = reshape(movedim(source, axis, 0), len(indices), inner)
    result = put_rows(reshape(axis_first, axis_first.shape[0], inner), rows, indices)
    return movedim(reshape(result, axis_first.shape), 0, axis)


def _full(name: str, like: Array, value: Array | Scalar, shape: Shape) -> Array:
    """A number broadcast to a shape, in the dtype of `like`.

    Raises:
        ShapeError: it is a tensor with axes.
    """
    if not isinstance(value, TensorBase):
        return expanded_number(like, value, shape, name)
    if value.shape:
        raise ShapeError(f"[{name}] the value must be a number or have shape (), got {value.shape}")
    _, value = on_one_device(name, [like, value], scalars=True)
    return expand(cast(value, like.dtype.name), shape)


# Elements


@export("dl", "Tensor", "Tensor_", out=True)
def scatter(
    input: Array,
    dim: int,
    index: Array | npt.ArrayLike,
    src: Array | Scalar | None = None,
    *,
    value: Scalar | None = None,
    reduce: Literal["add", "multiply"] | None = None,
) -> Array:
    """A copy of the input with one element along axis `dim` replaced for each index.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: ints, as for :func:`gather`; where several name the same element, the last one counts.
        src: a tensor at least as large as the index, or a number.
        value: a number, in place of `src`.
        reduce: what the input's element and those of `src` make, instead of being replaced: "add" their sum,
            "multiply" their product.

    Raises:
        ArgumentError: an index is out of range, not exactly one of `src` and `value` is given, or the
            reduction is unknown.
        ShapeError: as for :func:`gather`.

    Example:
        >>> import dl4all as dl
        >>> dl.scatter(dl.zeros(2, 3), 1, dl.tensor([[2], [0]]), 5.0).tolist()
        [[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]
    """
    if (src is None) == (value is None):
        raise ArgumentError("[scatter] give either src, a tensor or a number, or value")
    source: Any = value if src is None else src
    if reduce is None:
        return gather_scatter.scatter(input, dim, index, source)
    if reduce not in ("add", "multiply"):
        raise ArgumentError(f"[scatter] reduce must be 'add' or 'multiply', got {reduce!r}")
    if not isinstance(source, TensorBase):
        shape = index.shape if isinstance(index, TensorBase) else np.shape(index)
        source = expanded_number(input, source, shape, "scatter")
    if reduce == "add":
        return scatter_add(input, dim, index, source)
    return scatter_reduce(input, dim, index, source, "prod")


@export("dl", "Tensor", "Tensor_", autocast="widest")
@reads("indices")
def index_put(input: Array, indices: Sequence[Array], values: Array, accumulate: bool = False) -> Array:
    """A copy of the input with values at the elements that indices into its first axes select.

    Args:
        input: a tensor.
        indices: ints or bools for each of the first axes, as in ``input[indices]``; a slice of all leaves an
            axis out.
        values: a tensor, broadcast to the shape of the selection.
        accumulate: add the values instead of replacing elements, also where indices repeat.

    Raises:
        ArgumentError: an index is out of range, or there are too many.
        ShapeError: the values do not broadcast.

    Example:
        >>> import dl4all as dl
        >>> index = (dl.tensor([0, 0, 1]),)
        >>> dl.index_put(dl.zeros(2), index, dl.tensor([1.0, 2.0, 3.0]), accumulate=True).tolist()
        [3.0, 3.0]
    """
    key = tuple(indices)
    _, values = on_one_device("index_put", [input, values], scalars=True)
    if not accumulate:
        result = copy_for(input, values)
        setitem(result, key, values)
        return result
    picks = advanced_indexing.parse_key(key, input.shape)
    if None in picks.view_key:
        raise ArgumentError("[index_put] the indices must select from axes of the input; they add one")
    shape = input.shape
    flat, indexed = flat_indices("index_put", picks.arrays, [shape[axis] for axis in picks.axes], input)
    others = [axis for axis in range(len(shape)) if axis not in picks.axes]
    front = picks.axes[0] if picks.adjacent() else 0  # axes of the selection before those of the indices
    kept = [shape[axis] for axis in others]
    selected = (*kept[:front], *indexed, *kept[front:])
    if np.broadcast_shapes(values.shape, selected) != selected:
        raise ShapeError(f"[index_put] values of shape {values.shape} do not broadcast to {selected}")
    behind = front + len(indexed)
    indexed_first = permute(expand(values, selected), *_moved_to_front(front, behind, len(selected)))
    rows = reshape(indexed_first, 1, len(flat), math.prod(kept))
    sizes = [shape[axis] for axis in picks.axes]
    if front == 0 and picks.axes == tuple(range(len(sizes))) and combines_on_host(input, rows, flat):
        axes = (1, math.prod(sizes), math.prod(kept))
        return combined_rows("sum", input, rows, flat, axes)
    sums = reshape(take_rows_backward(rows, flat, math.prod(sizes)), (*sizes, *kept))
    return add(input, permute(sums, *np.argsort((*picks.axes, *others)).tolist()))


def _moved_to_front(start: int, end: int, ndim: int) -> tuple[int, ...]:
    """The order of axes in which those from `start` to `end` come first."""
    return (*range(start, end), *range(start), *range(end, ndim))


@export("dl", "Tensor", "Tensor_")
@reads("mask")
def masked_scatter(input: Array, mask: Array, source: Array) -> Array:
    """A copy of the input with consecutive elements of `source` where a mask is true.

    Args:
        input: a tensor.
        mask: bools that broadcast with the input.
        source: of the input's dtype, with at least as many elements as the mask has true ones.

    Raises:
        ArgumentError: the source has too few elements.
        DTypeError: the mask is not of bools, or the source of another dtype.
        ShapeError: the mask does not broadcast to the input.

    Example:
        >>> import dl4all as dl
        >>> mask = dl.tensor([True, False, True])
        >>> dl.masked_scatter(dl.zeros(3), mask, dl.tensor([5.0, 6.0])).tolist()
        [5.0, 0.0, 6.0]
    """
    mask_array = bool_mask("masked_scatter", mask)
    try:
        shape = np.broadcast_shapes(input.shape, mask_array.shape)
    except ValueError:
        raise ShapeError(
            f"[masked_scatter] a mask of shape {mask_array.shape} does not broadcast to {input.shape}"
        ) from None
    indices = np.flatnonzero(np.broadcast_to(mask_array, shape))
    if source.dtype != input.dtype:
        raise DTypeError(f"[masked_scatter] the source must be of {input.dtype}, got {source.dtype}")
    if source.numel() < len(indices):
        raise ArgumentError(
            f"[masked_scatter] {len(indices)} places, but only {source.numel()} elements to put there"
        )
    expanded = expand(input, shape)
    if not len(indices):
        return clone(expanded)
    rows = reshape(narrow(flatten(source), 0, 0, len(indices)), len(indices), 1)
    return reshape(put_rows(reshape(expanded, expanded.numel(), 1), rows, Indices(indices)), shape)


# Reductions


@export("dl", "Tensor", "Tensor_", out=True)
@reads("index")
def scatter_reduce(
    input: Array,
    dim: int,
    index: Array | npt.ArrayLike,
    src: Array,
    reduce: Reduction,
    *,
    include_self: bool = True,
) -> Array:
    """A copy of the input with the elements of `src` reduced into it at given indices along axis `dim`.

    Args:
        input: a tensor of any dtype. Means of integers are rounded down; of bools a sum or a maximum is
            whether one is true, a product or a minimum whether all are.
        dim: the axis.
        index: ints, as for :func:`gather`: the target of each element of `src`.
        src: a tensor at least as large as the index.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether elements of the input take part in the reduction into them.

    Raises:
        ArgumentError, ShapeError: as for :func:`gather`, or the reduction is unknown.

    Example:
        >>> import dl4all as dl
        >>> x, index = dl.tensor([1.0, 2.0]), dl.tensor([0, 0, 1])
        >>> dl.scatter_reduce(x, 0, index, dl.tensor([3.0, 4.0, 5.0]), "amax").tolist()
        [4.0, 5.0]
    """
    name = "scatter_reduce"
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"[{name}] reduce must be one of {', '.join(REDUCTIONS)}, got {reduce!r}")
    if kind_of(input.dtype) == "b":
        numbers = scatter_reduce(
            cast(input, "int32"), dim, index, cast(src, "int32"), reduce, include_self=include_self
        )
        return cast(numbers, "bool")
    if not input.shape:
        index = np.atleast_1d(integer_indices(name, index))
        return reshape(
            scatter_reduce(reshape(input, 1), 0, index, reshape(src, 1), reduce, include_self=include_self),
            (),
        )
    axis = strides.axis(name, dim, len(input.shape))
    if reduce == "sum" and include_self:
        return scatter_add(input, axis, index, src)
    if input.device.is_host and device_indices.stays(index, input):
        flat, index_shape = indices_along(name, input, axis, index)
        if combines_on_host(input, src, flat):
            part = source_part(name, input, src, index_shape)
            return _reduced_on_host(input, part, flat, reduce, include_self)
    indices = checked_indices(name, index, input.shape[axis])
    if not indices.size:
        return clone(input)
    for i, size in enumerate(indices.shape):
        src = narrow(src, i, 0, size)
    if reduce in ("sum", "mean"):
        return _scatter_sum_or_mean(input, axis, indices, src, reduce, include_self)
    return _scatter_by_occurrence(input, axis, indices, src, reduce, include_self)


@export("dl", "Tensor", "Tensor_")
def index_reduce(
    input: Array,
    dim: int,
    index: Array | npt.ArrayLike,
    source: Array,
    reduce: Literal["prod", "mean", "amax", "amin"],
    *,
    include_self: bool = True,
) -> Array:
    """A copy of the input with the slices of `source` reduced into it at given indices along axis `dim`.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        index: an int for each slice of `source`.
        source: of the input's shape but for `dim`.
        reduce: "prod", "mean", "amax" or "amin"; for sums there is :func:`index_add`.
        include_self: whether elements of the input take part in the reduction into them.

    Raises:
        ArgumentError: an index is out of range, or the reduction is unknown.
        ShapeError: the source does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.index_reduce(dl.ones(2), 0, dl.tensor([1, 1]), dl.tensor([2.0, 5.0]), "amax").tolist()
        [1.0, 5.0]
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise ArgumentError(f"[index_reduce] reduce must be prod, mean, amax or amin, got {reduce!r}")
    axis = strides.axis("index_reduce", dim, max(len(input.shape), 1))
    places = np.atleast_1d(integer_indices("index_reduce", index))
    expected = (*input.shape[:axis], len(places), *input.shape[axis + 1 :])
    if source.shape != expected and input.shape:
        raise ShapeError(f"[index_reduce] the source must have shape {expected}, got {source.shape}")
    lines = np.broadcast_to(places.reshape(-1, *(1,) * len(expected[axis + 1 :])), expected)
    return scatter_reduce(input, axis, lines, source, reduce, include_self=include_self)


@export("dl", "Tensor", "Tensor_")
def put(input: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    """A copy of the input with elements of `source` at row-major indices.

    Args:
        input: a tensor.
        index: ints of any shape.
        source: as many elements, of the input's dtype.
        accumulate: add them instead of replacing elements.

    Raises:
        ArgumentError: an index is out of range.
        ShapeError: the source has another number of elements.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2, 2).put(dl.tensor([3]), dl.tensor([5.0])).tolist()
        [[0.0, 0.0], [0.0, 5.0]]
    """
    if index.numel() != source.numel():
        raise ShapeError(f"[put] {index.numel()} indices are not for {source.numel()} elements")
    flat = index_put(flatten(input), (flatten(index),), flatten(source), accumulate)
    return reshape(flat, input.shape)


def _reduced_on_host(
    input: Array, src: Array, indices: Indices, reduce: Reduction, include_self: bool
) -> Array:
    """On the CPU, where a kernel combines elements in any mode, by indices into the flattened input."""
    axes = (1, input.numel(), 1)
    counts: Any = None
    start, mode = input, "sum" if reduce == "mean" else reduce
    if reduce == "mean" or not include_self:
        with tape.gradients(False):
            none = expanded_number(input, 0, input.shape)
            ones = expanded_number(input, 1, (1, len(indices), 1))
            counts = combined_rows("sum", none, ones, indices, axes)
    if not include_self:
        start = where(counts > 0, _neutral_element(mode, input.dtype), input)
    result = combined_rows(mode, start, src, indices, axes)
    if reduce == "mean":
        return _divide(result, where(counts > 0, counts + int(include_self), 1))
    return result


def _divide(total: Array, counts: Array) -> Array:
    return (true_divide if kind_of(total.dtype) == "f" else floor_divide)(total, counts)


def _neutral_element(mode: str, dtype: np.dtype[Any]) -> float:
    """The start of a reduction, as a number that the dtype has."""
    if mode in ("sum", "prod"):
        return int(mode == "prod")
    if kind_of(dtype) == "f":
        return NEUTRAL_ELEMENTS[mode]
    limits = np.iinfo(dtype)
    return int(limits.min if mode == "amax" else limits.max)


def _counts(input: Array, axis: int, indices: NDArray) -> Array:
    """The number of indices that have each element as their target."""
    ones = expanded_number(input, 1, indices.shape)
    return scatter_add(expanded_number(input, 0, input.shape), axis, indices, ones)


def _scatter_sum_or_mean(
    input: Array, axis: int, indices: NDArray, src: Array, reduce: Reduction, include_self: bool
) -> Array:
    with tape.gradients(False):
        counts = _counts(input, axis, indices)
    start = input if include_self else where(counts > 0, 0, input)
    total = scatter_add(start, axis, indices, src)
    if reduce == "sum":
        return total
    return _divide(total, where(counts > 0, counts + int(include_self), 1))


def _scatter_by_occurrence(
    input: Array, axis: int, indices: NDArray, src: Array, reduce: Reduction, include_self: bool
) -> Array:
    """Products and extremes: one tensor for the first index of each target, one for the second, and so on."""
    occurrences = _occurrences(indices, axis).reshape(-1)
    neutral = _neutral_element(reduce, input.dtype)
    with tape.gradients(False):
        is_target = _counts(input, axis, indices) > 0
    operands = [input if include_self else where(is_target, neutral, input)]
    flat_src = flatten(src)
    targets = _flat_indices(input.shape, axis, indices).reshape(-1)
    for occurrence in range(int(occurrences.max()) + 1):
        sources = np.flatnonzero(occurrences == occurrence)
        rows = np.full(input.numel(), -1)
        rows[targets[sources]] = sources
        has_source = reshape(to_device_of(input, rows >= 0), input.shape)
        taken = reshape(take_rows(reshape(flat_src, 1, flat_src.numel(), 1), Indices(rows)), input.shape)
        operands.append(where(has_source, taken, neutral))
    if reduce == "prod":
        product = operands[0]
        for operand in operands[1:]:
            product = product * operand
        return product
    # Equal extremes share the gradient.
    return (amax if reduce == "amax" else amin)(stack(operands), 0)


def _flat_indices(shape: Shape, axis: int, indices: NDArray) -> NDArray:
    """Indices along an axis as indices into the flattened tensor."""
    grid: list[NDArray] = list(np.indices(indices.shape))
    grid[axis] = indices
    steps = contiguous_strides(shape)
    return np.asarray(np.sum([g * step for g, step in zip(grid, steps, strict=True)], axis=0), np.int64)


def _occurrences(indices: NDArray, axis: int) -> NDArray:
    """For each index, how many indices before it along the axis equal it."""
    lines = np.moveaxis(indices, axis, -1)
    order = np.argsort(lines, -1, kind="stable")
    ascending = np.take_along_axis(lines, order, -1)
    starts_run = np.ones(ascending.shape, bool)
    starts_run[..., 1:] = ascending[..., 1:] != ascending[..., :-1]
    positions = np.arange(ascending.shape[-1])
    within_run = positions - np.maximum.accumulate(np.where(starts_run, positions, 0), -1)
    result = np.empty_like(within_run)
    np.put_along_axis(result, order, within_run, -1)
    return np.moveaxis(result, -1, axis)
