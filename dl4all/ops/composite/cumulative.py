"""What runs along an axis: extremes so far, sums of exponentials so far, differences, areas."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.composite.binary import logaddexp
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.logic import logical_xor
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.views import narrow, reshape
from dl4all.ops.reduce.extrema import Extremes
from dl4all.ops.reduce.reduction_kernel import one_axis
from dl4all.ops.reduce.scan import cumsum
from dl4all.ops.reduce.sums import sum


@export("dl", "Tensor")
@reads("input")
def cummax(input: Any, dim: int) -> Extremes:
    """The largest of the elements up to each one along an axis, and where it is, of equal ones the last.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape. From a nan on there are only nans.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.cummax(dl.tensor([1.0, 3.0, 2.0]), 0).values.tolist()
        [1.0, 3.0, 3.0]
    """
    return _extreme_so_far("cummax", input, dim)


@export("dl", "Tensor")
@reads("input")
def cummin(input: Any, dim: int) -> Extremes:
    """The smallest of the elements up to each one along an axis, and where it is, of equal ones the last.

    Returns:
        ``values`` and int64 ``indices``, of the input's shape. From a nan on there are only nans.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.cummin(dl.tensor([2.0, 3.0, 1.0]), 0).values.tolist()
        [2.0, 2.0, 1.0]
    """
    return _extreme_so_far("cummin", input, dim)


def _extreme_so_far(name: str, input: Any, dim: int) -> Extremes:
    axis = one_axis(name, dim, len(input.shape))
    array = np.atleast_1d(input.on_host())
    so_far = (np.maximum if name == "cummax" else np.minimum).accumulate(array, axis)
    new = (array == so_far) | (array != array)
    line = [1] * array.ndim
    line[axis] = -1
    numbers = np.where(new, np.arange(array.shape[axis]).reshape(line), 0)
    places = np.ascontiguousarray(np.maximum.accumulate(numbers, axis), np.int64)
    indices = from_host(type(input).result_class, places.reshape(input.shape), input.device, copy=False)
    return Extremes(gather(input, axis, indices), indices)


@export("dl", "Tensor")
def logcumsumexp(input: Any, dim: int) -> Any:
    """The logarithm of the sum of the exponentials up to each element along an axis, without overflow.

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
    found = input
    if not input.shape:
        return input
    size, step = input.shape[axis], 1
    # Each round adds to every place what the places a step before it have gathered.
    while step < size:
        here, before = narrow(found, axis, step, size - step), narrow(found, axis, 0, size - step)
        found = cat([narrow(found, axis, 0, step), logaddexp(here, before)], axis)
        step *= 2
    return found


@export("dl", "Tensor")
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """What each element is more than the one before along an axis.

    Args:
        input: any dtype; of bools, whether they differ.
        n: how many times that is done.
        dim: the axis.
        prepend, append: tensors to be joined to the input first, in front and behind.

    Raises:
        ArgumentError: there is no such axis, or `n` is negative.
        ShapeError: what is to be joined does not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.diff(dl.tensor([1.0, 4.0, 9.0])).tolist()
        [3.0, 5.0]
    """
    if n < 0 or not input.shape:
        raise ArgumentError(f"[diff] expected an axis and n of at least 0, got shape {input.shape} and n={n}")
    axis = one_axis("diff", dim, len(input.shape))
    parts = [part for part in (prepend, input, append) if part is not None]
    found = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(min(n, found.shape[axis])):
        size = max(found.shape[axis] - 1, 0)
        later, earlier = narrow(found, axis, found.shape[axis] - size, size), narrow(found, axis, 0, size)
        found = logical_xor(later, earlier) if found.dtype.kind == "b" else later - earlier
    return found


def _areas(name: str, y: Any, x: Any, dx: float, dim: int) -> tuple[Any, int]:
    """The areas between neighbours along an axis, and the axis."""
    axis = one_axis(name, dim, len(y.shape))
    if not y.shape:
        raise ArgumentError(f"[{name}] expected an axis, got a tensor of shape ()")
    size = max(y.shape[axis] - 1, 0)
    twice = narrow(y, axis, y.shape[axis] - size, size) + narrow(y, axis, 0, size)
    if x is None:
        return twice * (dx / 2), axis
    if len(x.shape) == 1:
        line = [1] * len(y.shape)
        line[axis] = x.shape[0]
        x = reshape(x, *line)
        along = axis
    else:
        along = axis - len(y.shape) + len(x.shape)
    return twice * diff(x, dim=along) / 2, axis


@export("dl", aliases=("trapz",))
def trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """The area below points along an axis that straight lines join.

    Args:
        y: how high they are.
        x: where they are: a tensor of one axis, or one that broadcasts with `y`.
        dx: how far they are apart, without `x`.
        dim: the axis.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.trapezoid(dl.tensor([1.0, 5.0, 10.0])).item()
        10.5
    """
    areas, axis = _areas("trapezoid", y, x, dx, dim)
    return sum(areas, axis)


trapz = trapezoid


@export("dl")
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: float = 1.0, dim: int = -1) -> Any:
    """The area up to each point but the first; arguments as for :func:`trapezoid`.

    Example:
        >>> import dl4all as dl
        >>> dl.cumulative_trapezoid(dl.tensor([1.0, 5.0, 10.0])).tolist()
        [3.0, 10.5]
    """
    areas, axis = _areas("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, axis)
