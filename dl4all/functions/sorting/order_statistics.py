"""Order statistics and the mode, by the kernels of ``ops/sorting`` on devices."""

from __future__ import annotations

from typing import Literal, get_args, overload

import numpy as np

from dl4all.errors import ArgumentError, DTypeError
from dl4all.functions.host import numbers, to_device_of
from dl4all.functions.reduction.cumulative import last_extremes
from dl4all.functions.sorting.sort_and_search import Sorted, sort
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import lerp, sub
from dl4all.ops.elementwise.comparison import isnan, ne
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.gather_scatter import gather, index_select
from dl4all.ops.indexing.indices import NDArray
from dl4all.ops.indexing.padding import pad
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import contiguous, flatten, movedim, reshape, squeeze, unsqueeze
from dl4all.ops.reduce.any_all import any
from dl4all.ops.reduce.extrema import argmax
from dl4all.ops.reduce.reduction_kernel import one_axis
from dl4all.ops.sorting.along_axis import as_rows, axis_order, selected_along
from dl4all.ops.sorting.placement import by_kernels_or_host
from dl4all.ops.sorting.search import median_indices
from dl4all.ops.sorting.selection import select_in_rows, wide_indices

Interpolation = Literal["linear", "lower", "higher", "midpoint", "nearest"]
INTERPOLATIONS = get_args(Interpolation)
EXACT_FLOATS = 2**24  # the number up to which each one is a float32


def _axis_with_elements(name: str, input: Array, dim: int) -> int:
    """The axis that `dim` names.

    Raises:
        ArgumentError: there is no such axis, or it has no elements.
    """
    axis = one_axis(name, dim, len(input.shape))
    if input.shape and input.shape[axis] == 0:
        raise ArgumentError(f"[{name}] axis {axis} of shape {input.shape} has no elements")
    return axis


def _on_host(input: Array, axis: int) -> NDArray:
    """The elements on the host with an axis last."""
    return np.moveaxis(np.atleast_1d(numbers(input)), axis, -1)


def _select_one(input: Array, x: Array, indices: TensorBase, axis: int, keepdim: bool) -> Sorted:
    """One element of each of the input's rows `x` along an axis by kernels' indices, of shape (rows, 1)."""
    values, index = selected_along(input, x, indices, axis)
    return (
        Sorted(values, index)
        if keepdim or not input.shape
        else Sorted(squeeze(values, axis), squeeze(index, axis))
    )


def _gather_one(input: Array, indices: NDArray, axis: int, keepdim: bool) -> Sorted:
    """One element along an axis for each index into it, and the indices as a tensor."""
    if not input.shape:
        index = to_device_of(input, indices.reshape(()))
        return Sorted(gather(input, 0, index), index)
    index = to_device_of(input, np.ascontiguousarray(np.expand_dims(indices, axis), np.int64))
    values = gather(input, axis, index)
    return Sorted(values, index) if keepdim else Sorted(squeeze(values, axis), squeeze(index, axis))


@overload
def median(input: Array, dim: None = None, keepdim: bool = False) -> Array: ...
@overload
def median(input: Array, dim: int, keepdim: bool = False) -> Sorted: ...
@export("dl", "Tensor", out=True)
@reads("input")
def median(input: Array, dim: int | None = None, keepdim: bool = False) -> Array | Sorted:
    """The median, the lower one of two middle elements; nan if an element is nan.

    Args:
        input: any dtype.
        dim: the axis; by default the median of all elements.
        keepdim: whether the axis stays, with size 1.

    Returns:
        A tensor, or with `dim` a pair of ``values`` and int64 ``indices``.

    Raises:
        ArgumentError: there is no such axis, or no element.

    Example:
        >>> import dl4all as dl
        >>> dl.median(dl.tensor([3.0, 1.0, 2.0, 4.0])).item()
        2.0
    """
    return _median("median", input, dim, keepdim)


@overload
def nanmedian(input: Array, dim: None = None, keepdim: bool = False) -> Array: ...
@overload
def nanmedian(input: Array, dim: int, keepdim: bool = False) -> Sorted: ...
@export("dl", "Tensor", out=True)
@reads("input")
def nanmedian(input: Array, dim: int | None = None, keepdim: bool = False) -> Array | Sorted:
    """The median of the elements that are not nan, the lower one of two middle elements.

    Arguments, results and errors are those of :func:`median`.

    Example:
        >>> import dl4all as dl
        >>> dl.nanmedian(dl.tensor([3.0, float("nan"), 2.0])).item()
        2.0
    """
    return _median("nanmedian", input, dim, keepdim)


def _median(name: str, input: Array, dim: int | None, keepdim: bool) -> Array | Sorted:
    if dim is None:
        return _median_along(name, flatten(input), 0, False).values
    return _median_along(name, input, dim, keepdim)


def _median_along(name: str, input: Array, dim: int, keepdim: bool) -> Sorted:
    axis = _axis_with_elements(name, input, dim)

    def kernels() -> Sorted:
        x = as_rows(input, axis)
        if not x.shape[0]:
            return _select_one(input, x, axis_order(x, 1, descending=False), axis, keepdim)
        indices = median_indices(tape.alias(x), ignore_nan=name == "nanmedian")
        return _select_one(input, x, indices, axis, keepdim)

    def host() -> Sorted:
        array = _on_host(input, axis)
        order = np.argsort(array, -1, kind="stable")
        is_nan = np.isnan(array) if kind_of(array.dtype) == "f" else np.zeros(array.shape, bool)
        count = array.shape[-1] - is_nan.sum(-1)
        indices = np.take_along_axis(order, np.maximum(count - 1, 0)[..., None] // 2, -1)[..., 0]
        if name == "median":
            indices = np.where(is_nan.any(-1), is_nan.argmax(-1), indices)
        return _gather_one(input, indices, axis, keepdim)

    return by_kernels_or_host(name, input, kernels, host)


@export("dl", "Tensor", out=True)
@reads("input")
def kthvalue(input: Array, k: int, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The `k`-th smallest element along an axis, counted from 1; nan counts as the largest.

    Returns:
        ``values`` and int64 ``indices``.

    Raises:
        ArgumentError: there is no such axis, or it has less than `k` elements.

    Example:
        >>> import dl4all as dl
        >>> dl.kthvalue(dl.tensor([3.0, 1.0, 2.0]), 2).values.item()
        2.0
    """
    integer("kthvalue", "k", k)
    axis = _axis_with_elements("kthvalue", input, dim)
    size = input.shape[axis] if input.shape else 1
    if not 1 <= k <= size:
        raise ArgumentError(f"[kthvalue] k must be from 1 to {size}, got {k}")

    def kernels() -> Sorted:
        x = as_rows(input, axis)
        first = axis_order(x, k, descending=False)
        return _select_one(input, x, contiguous(narrow(first, 1, k - 1, 1)), axis, keepdim)

    def host() -> Sorted:
        order = np.argsort(_on_host(input, axis), -1, kind="stable")
        return _gather_one(input, order[..., k - 1], axis, keepdim)

    return by_kernels_or_host("kthvalue", input, kernels, host)


@export("dl", "Tensor", out=True)
@reads("input")
def mode(input: Array, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The most frequent element along an axis, the smallest if several are, and its last index.

    Returns:
        ``values`` and int64 ``indices``.

    Raises:
        ArgumentError: there is no such axis, or it has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.mode(dl.tensor([3, 1, 3, 2])).values.item()
        3
    """
    axis = _axis_with_elements("mode", input, dim)

    def kernels() -> Sorted:
        x = as_rows(input, axis)
        order = axis_order(x, x.shape[1], descending=False)
        if x.shape[0]:
            ascending = select_in_rows(tape.alias(x), order)
            order = gather(order, 1, _ends_of_longest_runs(ascending))
        return _select_one(input, x, order, axis, keepdim)

    def host() -> Sorted:
        array = _on_host(input, axis)
        order = np.argsort(array, -1, kind="stable")
        ascending = np.take_along_axis(array, order, -1)
        positions = np.arange(array.shape[-1])
        starts_run = np.ones(array.shape, bool)
        starts_run[..., 1:] = ascending[..., 1:] != ascending[..., :-1]
        run_starts = np.maximum.accumulate(np.where(starts_run, positions, 0), -1)
        run_end = np.argmax(positions - run_starts, -1)  # of the first of the longest runs
        return _gather_one(input, np.take_along_axis(order, run_end[..., None], -1)[..., 0], axis, keepdim)

    return by_kernels_or_host("mode", input, kernels, host)


def _ends_of_longest_runs(ascending: Array) -> Array:
    """For each row, the last index of the first of the longest runs of equal elements, of shape (rows, 1)."""
    size = ascending.shape[1]
    if size > EXACT_FLOATS:
        raise NoKernel(f"positions beyond {EXACT_FLOATS} are no exact floats")
    positions = to_device_of(ascending, np.arange(size, dtype=np.float32))
    later = where(
        ne(narrow(ascending, 1, 1, size - 1), narrow(ascending, 1, 0, size - 1)), positions[1:], 0.0
    )
    starts = pad(later, (1, 0))
    run_starts = gather(starts, 1, wide_indices(last_extremes(starts, largest=True)))
    return argmax(sub(positions, run_starts), 1, True)


@export("dl", "Tensor", out=True)
@reads("input", "q")
def quantile(
    input: Array,
    q: Array | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: Interpolation = "linear",
) -> Array:
    """The `q`-th quantiles: a fraction `q` of the elements lies below them; nan where an element is nan.

    Args:
        input: floats.
        q: from 0 to 1, a number or a 1-d tensor.
        dim: the axis; by default the quantiles of all elements.
        keepdim: whether the axis stays, with size 1.
        interpolation: the result between two elements: "linear", "lower", "higher", "midpoint" or
            "nearest".

    Returns:
        The input's shape without the axis; for a tensor `q`, with its axis in front.

    Raises:
        ArgumentError: `q` is out of range, there is no such axis, it has no elements, or the interpolation
            is unknown.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.quantile(dl.tensor([0.0, 10.0, 20.0]), 0.25).item()
        5.0
    """
    if interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        raise ArgumentError(f"[quantile] interpolation must be one of {known}, got {interpolation!r}")
    if kind_of(input.dtype) != "f":
        raise DTypeError(f"[quantile] expected floats, got {input.dtype}; convert with .float()")
    trained = q if isinstance(q, TensorBase) and tape.wants_gradient(q) else None
    fractions = np.asarray(numbers(q) if isinstance(q, TensorBase) else q, input.dtype)
    if fractions.ndim > 1 or not ((fractions >= 0) & (fractions <= 1)).all():
        raise ArgumentError(f"[quantile] q must be a number from 0 to 1, or a 1-d tensor of them, got {q!r}")
    if dim is None:
        result = _quantiles_of_last_axis(flatten(input), fractions, interpolation, trained)
        return reshape(result, *result.shape, *(1,) * len(input.shape)) if keepdim else result
    axis = one_axis("quantile", dim, len(input.shape))
    moved = movedim(input, axis, -1) if input.shape else reshape(input, 1)
    result = _quantiles_of_last_axis(moved, fractions, interpolation, trained)
    return unsqueeze(result, axis + fractions.ndim) if keepdim and input.shape else result


def _quantiles_of_last_axis(
    input: Array, fractions: NDArray, interpolation: Interpolation, trained: Array | None
) -> Array:
    """Quantiles along the last axis; the axis of `fractions` comes first.

    Args:
        trained: the fractions as a tensor, if they get a gradient.

    Raises:
        ArgumentError: there are no elements.
    """
    size = input.shape[-1]
    if size == 0:
        raise ArgumentError(f"[quantile] there are no elements in shape {input.shape}")
    ranks = fractions.reshape(-1) * input.dtype.type(size - 1)
    if interpolation == "nearest":
        ranks = np.rint(ranks)
    elif interpolation in ("lower", "higher"):
        ranks = (np.floor if interpolation == "lower" else np.ceil)(ranks)
    ascending = sort(input, -1).values
    lower_ranks = np.floor(ranks).astype(np.int64)
    result = index_select(ascending, -1, lower_ranks)
    if interpolation in ("linear", "midpoint"):
        weights = np.full(ranks.shape, 0.5) if interpolation == "midpoint" else ranks - lower_ranks
        weights = np.where(ranks == lower_ranks, 0, weights).astype(input.dtype)
        upper = index_select(ascending, -1, np.minimum(lower_ranks + 1, size - 1))
        shares = to_device_of(input, weights)
        if trained is not None and interpolation == "linear":
            slope = reshape(trained, -1) * (size - 1)
            shares = shares + (slope - slope.detach())
        result = lerp(result, upper, shares)
    result = where(any(isnan(input), -1, keepdim=True), np.nan, result)
    return movedim(result, -1, 0) if fractions.ndim else squeeze(result, -1)
