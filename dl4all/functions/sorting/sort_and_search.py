"""Sorting and searching: by the kernels of ``ops/sorting`` on devices, by NumPy on the CPU."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.functions.host import numbers, to_device_of
from dl4all.ops.core import strides, tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.gather_scatter import gather, nonzero
from dl4all.ops.indexing.indices import NDArray
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.sorting.along_axis import along_axis, as_rows, axis_order, sorted_along
from dl4all.ops.sorting.placement import by_kernels_or_host
from dl4all.ops.sorting.search import insertion_points
from dl4all.ops.sorting.selection import wide_indices


class Sorted(NamedTuple):
    """Elements along an axis, and their indices in the input."""

    values: Array
    indices: Array


class TopK(NamedTuple):
    """The largest or smallest elements along an axis, and their indices in the input."""

    values: Array
    indices: Array


@export("dl", "Tensor", out=True)
@reads("input")
def sort(input: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """The elements sorted along axis `dim`; the sort is stable, nan counts as the largest.

    Args:
        input: a tensor of any dtype.
        dim: the axis.
        descending: sort from the largest to the smallest.
        stable: has no effect; the sort is always stable.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.sort(dl.tensor([0.3, 0.1, 0.2])).indices.tolist()
        [1, 2, 0]
    """
    axis = strides.axis("sort", dim, max(len(input.shape), 1))
    return Sorted(*_first_sorted("sort", input, axis, _size(input, axis), descending))


@export("dl", "Tensor", out=True)
@reads("input")
def argsort(input: Array, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    """The indices that sort the elements along axis `dim`, as from :func:`sort`.

    Example:
        >>> import dl4all as dl
        >>> dl.argsort(dl.tensor([3, 1, 2])).tolist()
        [1, 2, 0]
    """
    axis = strides.axis("argsort", dim, max(len(input.shape), 1))

    def kernels() -> Array:
        x = as_rows(tape.alias(input), axis)
        order = axis_order(x, x.shape[1], descending=descending)
        return along_axis(wide_indices(order), input.shape, axis)

    return by_kernels_or_host(
        "argsort", input, kernels, lambda: to_device_of(input, _host_order(input, axis, descending))
    )


@export("dl", "Tensor", out=True)
def msort(input: Array) -> Array:
    """The elements sorted along the first axis.

    Example:
        >>> import dl4all as dl
        >>> dl.msort(dl.tensor([[3.0, 1.0], [2.0, 4.0]])).tolist()
        [[2.0, 1.0], [3.0, 4.0]]
    """
    return sort(input, 0).values


def _size(input: Array, axis: int) -> int:
    """The size of an axis; a 0-d tensor has one of size 1."""
    return input.shape[axis] if input.shape else 1


def _first_sorted(name: str, input: Array, axis: int, count: int, descending: bool) -> tuple[Array, Array]:
    """The first `count` elements of the sorted input along an axis, and their indices."""

    def host() -> tuple[Array, Array]:
        order = _host_order(input, axis, descending)
        if input.shape:
            order = np.take(order, np.arange(count), axis)
        order = np.asarray(order, order="C")
        if input.shape and input.device.is_host and not tape.wants_gradient(input):
            values = to_device_of(input, np.take_along_axis(input.on_host(), order, axis))
        else:
            values = gather(input, axis, order)
        return values, to_device_of(input, order)

    return by_kernels_or_host(
        name, input, lambda: sorted_along(input, axis, count, descending=descending), host
    )


def _host_order(input: Array, axis: int, descending: bool) -> NDArray:
    """The indices that sort the elements along an axis, of the input's shape."""
    array = np.atleast_1d(numbers(input))
    if descending:
        # Sort the flipped array and flip the order, instead of sorting -array: bool has no negation, and
        # uint8 would wrap around.
        flipped_order = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
        order = array.shape[axis] - 1 - np.flip(flipped_order, axis)
    else:
        order = np.argsort(array, axis=axis, kind="stable")
    result: NDArray = order.reshape(input.shape).astype(np.int64, order="C", copy=False)
    return result


@export("dl", "Tensor", out=True)
@reads("input")
def topk(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """The `k` largest elements along axis `dim`, sorted; equal elements keep their order.

    nan counts as the largest.

    Args:
        input: a tensor of any shape.
        k: the number of elements, at most the size of the axis.
        dim: the axis.
        largest: False for the smallest elements, in ascending order.
        sorted: has no effect; the result is always sorted.

    Returns:
        ``values`` and int64 ``indices`` on the input's device, of the input's shape but for size `k` along
        `dim`.

    Raises:
        ArgumentError: there is no such axis, or it has fewer than `k` elements.

    Example:
        >>> import dl4all as dl
        >>> dl.topk(dl.tensor([0.1, 0.7, 0.2]), 2).indices.tolist()
        [1, 2]
    """
    integer("topk", "k", k)
    if not input.shape:
        return TopK(*(reshape(part, ()) for part in topk(reshape(input, 1), k, dim, largest)))
    axis = strides.axis("topk", dim, len(input.shape))
    if not 0 <= k <= input.shape[axis]:
        raise ArgumentError(
            f"[topk] k must be from 0 to {input.shape[axis]} for shape {input.shape}, got {k}"
        )
    return TopK(*_first_sorted("topk", input, axis, k, largest))


@export("dl", out=True)
@reads("sorted_sequence", "input", "sorter")
def searchsorted(
    sorted_sequence: Array,
    input: Array | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Literal["left", "right"] | None = None,
    sorter: Array | None = None,
) -> Array:
    """The indices at which values can be inserted into a sorted sequence so that it stays sorted.

    Args:
        sorted_sequence: ascending along the last axis; 1-d, or of the values' shape but for that axis.
        input: the values: a tensor or a number.
        out_int32: whether the result is int32 in place of int64.
        right: insert after equal elements instead of before them.
        side: "right" is the same as ``right=True``, "left" as ``right=False``.
        sorter: the indices that sort the sequence along the last axis, if it is not sorted.

    Returns:
        int64 or int32, of the values' shape.

    Raises:
        ArgumentError: the shapes do not fit, or `side` contradicts `right`.

    Example:
        >>> import dl4all as dl
        >>> dl.searchsorted(dl.tensor([1.0, 3.0, 5.0]), dl.tensor([3.0, 6.0]), side="right").tolist()
        [2, 3]
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError(f"[searchsorted] side must be 'left' or 'right' as right says, got {side!r}")
    right = right or side == "right"
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise ArgumentError(
                f"[searchsorted] a sorter of shape {sorter.shape} does not sort {sorted_sequence.shape}"
            )
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    given = input if isinstance(input, TensorBase) else np.asarray(input)
    per_row = len(sorted_sequence.shape) != 1
    if per_row and sorted_sequence.shape[:-1] != given.shape[:-1]:
        raise ArgumentError(
            f"[searchsorted] shapes {sorted_sequence.shape} and {given.shape} must be equal but for the last "
            "axis"
        )

    def kernels() -> Array:
        if not (isinstance(given, TensorBase) and given.device is sorted_sequence.device):
            raise NoKernel("the values are no tensor of its device")
        if given.dtype != sorted_sequence.dtype:
            raise NoKernel(f"the dtypes differ, {sorted_sequence.dtype} and {given.dtype}")
        sequence, points = (contiguous(tape.alias(x)) for x in (sorted_sequence, given))
        return insertion_points(sequence, points, right=right)

    def host() -> Array:
        sequence = numbers(sorted_sequence)
        array = numbers(given) if isinstance(given, TensorBase) else given
        side: Literal["left", "right"] = "right" if right else "left"
        if per_row:
            rows = math.prod(array.shape[:-1])
            pairs = zip(
                sequence.reshape(rows, math.prod(sequence.shape[-1:])),
                array.reshape(rows, math.prod(array.shape[-1:])),
                strict=True,
            )
            found = [np.searchsorted(row, value, side) for row, value in pairs]
            indices = np.array(found).reshape(array.shape)
        else:
            indices = np.asarray(np.searchsorted(sequence, array, side))
        return to_device_of(sorted_sequence, indices.astype(np.int64))

    places = by_kernels_or_host("searchsorted", sorted_sequence, kernels, host)
    return cast(places, "int32") if out_int32 else places


@export("dl", out=True)
def bucketize(
    input: Array | Scalar, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    """The index of the bucket of each element: :func:`searchsorted` with its operands swapped.

    Args:
        input: a tensor or a number.
        boundaries: the boundaries between buckets, 1-d and ascending.
        out_int32: whether the result is int32 in place of int64.
        right: an element equal to a boundary belongs to the bucket after it, not before it.

    Returns:
        int64 or int32, of the input's shape.

    Raises:
        ArgumentError: the boundaries are not 1-d.

    Example:
        >>> import dl4all as dl
        >>> dl.bucketize(dl.tensor([0.5, 2.5]), dl.tensor([1.0, 2.0, 3.0])).tolist()
        [0, 2]
    """
    if len(boundaries.shape) != 1:
        raise ArgumentError(f"[bucketize] boundaries must have one axis, got shape {boundaries.shape}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@export("dl", "Tensor")
def argwhere(input: Array) -> Array:
    """The indices of the elements that are not 0, one row for each; :func:`nonzero`.

    Example:
        >>> import dl4all as dl
        >>> dl.argwhere(dl.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
        [[0, 1], [1, 0]]
    """
    return nonzero(input)
