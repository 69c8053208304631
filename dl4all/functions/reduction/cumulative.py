"""Cumulative functions along an axis: cummax, cummin, logcumsumexp."""

from __future__ import annotations

import numpy as np

from dl4all.functions.elementwise.binary import logaddexp
from dl4all.functions.host import numbers, to_device_of
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import ge, isnan, le
from dl4all.ops.elementwise.logic import logical_or, where
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.copy import unshared
from dl4all.ops.memory.parts import narrow
from dl4all.ops.reduce.extrema import Extremes
from dl4all.ops.reduce.reduction_kernel import one_axis
from dl4all.ops.sorting.along_axis import along_axis, as_rows
from dl4all.ops.sorting.placement import by_kernels_or_host
from dl4all.ops.sorting.selection import wide_indices


@export("dl", "Tensor", out=True)
@reads("input")
def cummax(input: Array, dim: int) -> Extremes:
    """The cumulative maximum along an axis and its index, the last one of equal elements.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape. All values after a nan are nan.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.cummax(dl.tensor([1.0, 3.0, 2.0]), 0).values.tolist()
        [1.0, 3.0, 3.0]
    """
    return _cumulative_extreme("cummax", np.maximum, input, dim)


@export("dl", "Tensor", out=True)
@reads("input")
def cummin(input: Array, dim: int) -> Extremes:
    """The cumulative minimum along an axis and its index; everything else as for :func:`cummax`.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.cummin(dl.tensor([2.0, 3.0, 1.0]), 0).values.tolist()
        [2.0, 2.0, 1.0]
    """
    return _cumulative_extreme("cummin", np.minimum, input, dim)


def _cumulative_extreme(name: str, extreme: np.ufunc, input: Array, dim: int) -> Extremes:
    axis = one_axis(name, dim, len(input.shape))

    def kernels() -> Array:
        x = as_rows(tape.alias(input), axis)
        return along_axis(wide_indices(last_extremes(x, largest=name == "cummax")), input.shape, axis)

    def host() -> Array:
        array = np.atleast_1d(numbers(input))
        values = extreme.accumulate(array, axis)
        is_extreme = (array == values) | (array != array)  # nan counts
        index_shape = [1] * array.ndim
        index_shape[axis] = -1
        candidates = np.where(is_extreme, np.arange(array.shape[axis]).reshape(index_shape), 0)
        last = np.ascontiguousarray(np.maximum.accumulate(candidates, axis), np.int64)
        return to_device_of(input, last.reshape(input.shape))

    indices = by_kernels_or_host(name, input, kernels, host)
    return Extremes(gather(input, axis, indices), indices)


def last_extremes(x: Array, *, largest: bool) -> Array:
    """For each element of each row, the index of the last extreme up to there; nan is more than extreme.

    Args:
        x: contiguous, of shape (rows, size).
        largest: whether the extreme is the largest element.

    Returns:
        Contiguous int32 indices of the same shape.
    """
    rows, size = x.shape
    places = to_device_of(x, np.broadcast_to(np.arange(size, dtype=np.int32), (rows, size)).copy())
    beats = ge if largest else le
    step = 1
    # Hillis and Steele's scan: each round compares every element with the extreme that ends `step` before it.
    while step < size:
        late, early = narrow(x, 1, step, size - step), narrow(x, 1, 0, size - step)
        wins = beats(late, early)
        if kind_of(x.dtype) == "f":
            wins = logical_or(wins, isnan(late))
        parts = [
            where(wins, narrow(one, 1, step, size - step), narrow(one, 1, 0, size - step))
            for one in (x, places)
        ]
        x, places = (
            cat([narrow(one, 1, 0, step), part], 1) for one, part in zip((x, places), parts, strict=True)
        )
        step *= 2
    return places


@export("dl", "Tensor", out=True)
def logcumsumexp(input: Array, dim: int) -> Array:
    """The logarithm of the cumulative sum of the exponentials along an axis, without overflow.

    Raises:
        ArgumentError: there is no such axis.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.logcumsumexp(dl.tensor([1000.0, -1000.0]), 0).tolist()
        [1000.0, 1000.0]
    """
    check_float("logcumsumexp", input)
    axis = one_axis("logcumsumexp", dim, len(input.shape))
    result = input
    size, step = input.shape[axis] if input.shape else 1, 1
    # Hillis and Steele's scan: each round adds to every element the sum that ends `step` elements before it.
    while step < size:
        current, previous = narrow(result, axis, step, size - step), narrow(result, axis, 0, size - step)
        result = cat([narrow(result, axis, 0, step), logaddexp(current, previous)], axis)
        step *= 2
    return unshared(result, input)
