"""Cumulative functions along an axis: cummax, cummin, logcumsumexp."""

from __future__ import annotations

import numpy as np

from dl4all.ops.composite.binary import logaddexp
from dl4all.ops.composite.host import computed_on_host, to_device_of
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.views import narrow
from dl4all.ops.reduce.extrema import Extremes
from dl4all.ops.reduce.reduction_kernel import one_axis


@export("dl", "Tensor")
@reads("input")
@computed_on_host("cummax")
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


@export("dl", "Tensor")
@reads("input")
@computed_on_host("cummin")
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
    array = np.atleast_1d(input.on_host())
    values = extreme.accumulate(array, axis)
    is_extreme = (array == values) | (array != array)  # nan counts
    index_shape = [1] * array.ndim
    index_shape[axis] = -1
    candidates = np.where(is_extreme, np.arange(array.shape[axis]).reshape(index_shape), 0)
    last = np.ascontiguousarray(np.maximum.accumulate(candidates, axis), np.int64)
    indices = to_device_of(input, last.reshape(input.shape))
    return Extremes(gather(input, axis, indices), indices)


@export("dl", "Tensor")
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
    if not input.shape:
        return input
    result = input
    size, step = input.shape[axis], 1
    # Hillis and Steele's scan: each round adds to every element the sum that ends `step` elements before it.
    while step < size:
        current, previous = narrow(result, axis, step, size - step), narrow(result, axis, 0, size - step)
        result = cat([narrow(result, axis, 0, step), logaddexp(current, previous)], axis)
        step *= 2
    return result
