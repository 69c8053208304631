"""Set routines, by the kernels of ``ops/sorting``."""

from __future__ import annotations

from typing import overload

import numpy as np

from dl4all.errors import DTypeError
from dl4all.functions.host import numbers, to_device_of
from dl4all.functions.sorting.sort_and_search import argsort, searchsorted, sort
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import sub
from dl4all.ops.elementwise.comparison import eq, ne
from dl4all.ops.elementwise.logic import logical_not
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.gather_scatter import index_select, nonzero, scatter
from dl4all.ops.indexing.indices import NDArray
from dl4all.ops.memory.parts import narrow, select
from dl4all.ops.memory.views import contiguous, flatten, movedim, reshape, unsqueeze
from dl4all.ops.reduce.any_all import any
from dl4all.ops.reduce.scan import cumsum
from dl4all.ops.sorting.along_axis import axis_order
from dl4all.ops.sorting.compaction import Runs, runs_of
from dl4all.ops.sorting.keys import keys_of
from dl4all.ops.sorting.placement import by_kernels_or_host
from dl4all.ops.sorting.selection import select_in_rows

MOST_SORTS = 256
"""Elements of slices that are sorted, by one sort for each."""
MOST_COMPARED = 32
"""Candidates with which each element is compared; more of them are sorted first."""


@overload
def unique(input: Array, sorted: bool = True, *, dim: int | None = None) -> Array: ...
@overload
def unique(
    input: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Array | tuple[Array, ...]: ...
@export("dl", "Tensor")
@reads("input")
def unique(
    input: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Array | tuple[Array, ...]:
    """The different elements in ascending order; with `dim`, the different slices along that axis.

    Args:
        input: a tensor of any dtype.
        sorted: has no effect; the result is always sorted.
        return_inverse: also return the index of each element in the result.
        return_counts: also return how often each of the different elements occurs.
        dim: the axis.

    Returns:
        A tensor, or a tuple of it, the inverse and the counts if they are asked for. The gradient of an
        element goes to the first of the elements that equal it.

    Example:
        >>> import dl4all as dl
        >>> dl.unique(dl.tensor([3, 1, 3])).tolist()
        [1, 3]
    """
    axis = None if dim is None else strides.axis("unique", dim, len(input.shape))

    def kernels() -> Array | tuple[Array, ...]:
        if axis is not None:
            order = _order_of_slices(_slices(input, axis)) if input.shape[axis] else None
            return _unique_slices(input, axis, order, return_inverse, return_counts)
        x = _one_row(input)
        order = axis_order(x, x.shape[1], descending=False)
        runs = runs_of(keys_of(tape.alias(x)), x.dtype, x.shape[1], order)
        first = select_in_rows(order, runs.starts)
        return _runs(select_in_rows(x, first), input, runs, return_inverse, return_counts)

    def host() -> Array | tuple[Array, ...]:
        _, first, inverse, counts = np.unique(
            numbers(input),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
            equal_nan=False,
        )
        source = flatten(input) if axis is None else input
        inverse = inverse.reshape(input.shape if axis is None else (input.shape[axis],))
        return _with_inverse_and_counts(
            index_select(source, axis or 0, first),
            inverse if return_inverse else None,
            counts if return_counts else None,
        )

    return by_kernels_or_host("unique", input, kernels, host, waits=True)


def _one_row(input: Array) -> Array:
    """All elements as one row."""
    return contiguous(reshape(input, 1, -1 if input.numel() else 0))


def _slices(input: Array, axis: int) -> Array:
    """The slices along an axis as rows.

    Raises:
        NoKernel: there are none, or they have no elements.
    """
    if not input.numel():
        raise NoKernel("there are no elements to compare")
    return contiguous(reshape(movedim(tape.alias(input), axis, 0), input.shape[axis], -1))


def _order_of_slices(slices: Array) -> Array:
    """The order of rows by their first elements, then by their second ones, and so on.

    Raises:
        NoKernel: the rows are long, and each element takes a sort.
    """
    count, size = slices.shape
    if size > MOST_SORTS:
        raise NoKernel(f"slices of {size} elements would take as many sorts")
    order = to_device_of(slices, np.arange(count))
    for column in reversed(range(size)):
        keys = index_select(select(slices, 1, column), 0, order)
        order = index_select(order, 0, argsort(keys, stable=True))
    return order


def _unique_slices(
    input: Array, axis: int, order: Array | None, return_inverse: bool, return_counts: bool
) -> Array | tuple[Array, ...]:
    """The slices that differ from the one before them, in an order or as they are."""
    if not input.shape[axis]:
        nothing = [
            to_device_of(input, np.zeros(0, np.int64)) for one in (return_inverse, return_counts) if one
        ]
        return (input, *nothing) if nothing else input
    slices = _slices(input, axis)
    slices = slices if order is None else index_select(slices, 0, order)
    count = slices.shape[0]
    differs = any(ne(narrow(slices, 0, 1, count - 1), narrow(slices, 0, 0, count - 1)), 1)
    starts_run = cat([to_device_of(slices, np.ones(1, bool)), differs])
    starts = flatten(nonzero(starts_run))
    results = [index_select(input, axis, starts if order is None else index_select(order, 0, starts))]
    if return_inverse:
        places = sub(cumsum(starts_run, 0), 1)
        results.append(places if order is None else scatter(places, 0, order, places))
    if return_counts:
        ends = cat([narrow(starts, 0, 1, len(starts) - 1), to_device_of(starts, np.full(1, count))])
        results.append(sub(ends, starts))
    return tuple(results) if len(results) > 1 else results[0]


def _runs(
    values: Array, input: Array, runs: Runs, return_inverse: bool, return_counts: bool
) -> Array | tuple[Array, ...]:
    results = (
        reshape(values, values.shape[1]),
        *((runs.inverse(input.shape),) if return_inverse else ()),
        *((runs.lengths(),) if return_counts else ()),
    )
    return results if len(results) > 1 else results[0]


@overload
def unique_consecutive(input: Array, *, dim: int | None = None) -> Array: ...
@overload
def unique_consecutive(
    input: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Array | tuple[Array, ...]: ...
@export("dl", "Tensor")
@reads("input")
def unique_consecutive(
    input: Array, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Array | tuple[Array, ...]:
    """The elements without those that equal their predecessor; with `dim`, the slices along that axis.

    Args:
        input: a tensor of any dtype.
        return_inverse: also return the index of each element in the result.
        return_counts: also return the length of each run of equal elements.
        dim: the axis; by default all elements in row-major order.

    Returns:
        A tensor, or a tuple of it, the inverse and the counts if they are asked for.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.unique_consecutive(dl.tensor([1, 1, 2, 1])).tolist()
        [1, 2, 1]
    """
    source = flatten(input) if dim is None else input
    axis = strides.axis("unique_consecutive", 0 if dim is None else dim, len(source.shape))

    def kernels() -> Array | tuple[Array, ...]:
        if dim is not None:
            return _unique_slices(input, axis, None, return_inverse, return_counts)
        x = _one_row(input)
        runs = runs_of(keys_of(tape.alias(x)), x.dtype, x.shape[1], None)
        return _runs(select_in_rows(x, runs.starts), input, runs, return_inverse, return_counts)

    def host() -> Array | tuple[Array, ...]:
        slices = np.moveaxis(numbers(source), axis, 0)
        slices = slices.reshape(len(slices), -1 if slices.size else 0)
        starts_run = np.ones(len(slices), bool)
        starts_run[1:] = (slices[1:] != slices[:-1]).any(1)
        starts = np.flatnonzero(starts_run)
        inverse = (np.cumsum(starts_run) - 1).reshape(input.shape if dim is None else (-1,))
        return _with_inverse_and_counts(
            index_select(source, axis, starts),
            inverse if return_inverse else None,
            np.diff(np.append(starts, len(slices))) if return_counts else None,
        )

    return by_kernels_or_host("unique_consecutive", input, kernels, host, waits=True)


def _with_inverse_and_counts(
    values: Array, inverse: NDArray | None, counts: NDArray | None
) -> Array | tuple[Array, ...]:
    arrays = [array for array in (inverse, counts) if array is not None]
    if not arrays:
        return values
    return (values, *(to_device_of(values, array.astype(np.int64)) for array in arrays))


@export("dl", out=True)
@reads("elements", "test_elements")
def isin(
    elements: Array | Scalar,
    test_elements: Array | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Array:
    """Whether each element occurs in another tensor.

    Args:
        elements, test_elements: tensors; one may be a number.
        assume_unique: has no effect.
        invert: return whether each element does not occur in it.

    Returns:
        bool, of the shape of `elements`.

    Raises:
        DTypeError: neither is a tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.isin(dl.tensor([1, 2, 3]), dl.tensor([2, 3])).tolist()
        [False, True, True]
    """
    tensors = [x for x in (elements, test_elements) if isinstance(x, TensorBase)]
    if not tensors:
        raise DTypeError("[isin] expected a tensor and numbers, got numbers only")

    def kernels() -> Array:
        found = _found(elements, test_elements)
        return logical_not(found) if invert else found

    def host() -> Array:
        searched, candidates = (
            numbers(x) if isinstance(x, TensorBase) else np.asarray(x) for x in (elements, test_elements)
        )
        return to_device_of(tensors[0], np.asarray(np.isin(searched, candidates, invert=invert)))

    return by_kernels_or_host("isin", tensors[0], kernels, host)


def _found(elements: Array | Scalar, test_elements: Array | Scalar) -> Array:
    """Whether each element is among the others, by kernels.

    Raises:
        NoKernel: they are of two dtypes or devices.
    """
    if not isinstance(elements, TensorBase) or not isinstance(test_elements, TensorBase):
        result = eq(elements, test_elements)
        return result if isinstance(elements, TensorBase) else any(result)
    if elements.dtype != test_elements.dtype or elements.device is not test_elements.device:
        raise NoKernel("the elements are of two dtypes or devices")
    candidates = flatten(test_elements)
    if candidates.numel() <= MOST_COMPARED:
        return any(eq(unsqueeze(elements, -1), candidates), -1)
    ascending = sort(candidates).values
    places = searchsorted(ascending, elements)
    padded = cat([ascending, narrow(ascending, 0, candidates.numel() - 1, 1)])
    return eq(reshape(index_select(padded, 0, flatten(places)), elements.shape), elements)
