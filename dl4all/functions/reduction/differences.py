"""Finite differences, and integration by the trapezoidal rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.elementwise.unary import as_float
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.elementwise.logic import logical_xor
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import reshape
from dl4all.ops.reduce.reduction_kernel import one_axis
from dl4all.ops.reduce.scan import cumsum
from dl4all.ops.reduce.sums import sum


@export("dl", "Tensor", out=True)
def diff(
    input: Array, n: int = 1, dim: int = -1, prepend: Array | None = None, append: Array | None = None
) -> Array:
    """The `n`-th differences between neighbouring elements along an axis.

    Args:
        input: any dtype; the difference of bools is whether they differ.
        n: how many times differences are taken; 0 gives a copy of the input, without what is to be joined.
        dim: the axis.
        prepend, append: tensors to be joined to the input first, in front of it and after it.

    Raises:
        ArgumentError: there is no such axis, or `n` is negative.
        ShapeError: the tensors to be joined do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.diff(dl.tensor([1.0, 4.0, 9.0])).tolist()
        [3.0, 5.0]
    """
    integer("diff", "n", n)
    if n < 0 or not input.shape:
        raise ArgumentError(f"[diff] expected an axis and n of at least 0, got shape {input.shape} and n={n}")
    axis = one_axis("diff", dim, len(input.shape))
    if n == 0:
        return clone(input)
    parts = [part for part in (prepend, input, append) if part is not None]
    result = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(min(n, result.shape[axis])):
        later, earlier = _neighbours(result, axis)
        result = logical_xor(later, earlier) if kind_of(result.dtype) == "b" else later - earlier
    return result


def _neighbours(input: Array, axis: int) -> tuple[Array, Array]:
    """All elements along an axis but the first, and all but the last."""
    size = input.shape[axis]
    count = max(size - 1, 0)
    return narrow(input, axis, size - count, count), narrow(input, axis, 0, count)


@export("dl", aliases=("trapz",))
def trapezoid(y: Array, x: Array | None = None, *, dx: float = 1.0, dim: int = -1) -> Array:
    """The integral along an axis by the trapezoidal rule.

    Args:
        y: the values of the function.
        x: the points at which it has them: a tensor with one axis, or one that broadcasts with `y`.
        dx: the distance between the points, without `x`.
        dim: the axis.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.trapezoid(dl.tensor([1.0, 5.0, 10.0])).item()
        10.5
    """
    areas, axis = _trapezoid_areas("trapezoid", y, x, dx, dim)
    return sum(areas, axis)


@export("dl")
def cumulative_trapezoid(y: Array, x: Array | None = None, *, dx: float = 1.0, dim: int = -1) -> Array:
    """The integral up to each point but the first; arguments as for :func:`trapezoid`.

    Example:
        >>> import dl4all as dl
        >>> dl.cumulative_trapezoid(dl.tensor([1.0, 5.0, 10.0])).tolist()
        [3.0, 10.5]
    """
    areas, axis = _trapezoid_areas("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, axis)


def _trapezoid_areas(name: str, y: Array, x: Array | None, dx: float, dim: int) -> tuple[Array, int]:
    """The areas of the trapezoids between neighbouring points along an axis, and the axis.

    Raises:
        ArgumentError: there is no such axis.
    """
    axis = one_axis(name, dim, len(y.shape))
    if not y.shape:
        raise ArgumentError(f"[{name}] expected an axis, got a tensor of shape ()")
    later, earlier = _neighbours(y, axis)
    twice_mean = later + earlier
    if x is None:
        return twice_mean * (dx / 2), axis
    if len(x.shape) == 1:
        shape = [1] * len(y.shape)
        shape[axis] = x.shape[0]
        x, x_axis = reshape(x, *shape), axis
    else:
        x_axis = axis - len(y.shape) + len(x.shape)
    return twice_mean * diff(x, dim=x_axis) / 2, axis


@export("dl")
def gradient(
    input: Array,
    *,
    spacing: float | Sequence[float | Array] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Array, ...]:
    """Derivatives of a sampled function along axes, by central differences.

    Args:
        input: numbers with at least ``edge_order + 1`` samples along each axis; of integers the result is
            float32.
        spacing: the distance between samples, 1 by default; or a list with a distance for each axis; or a
            list with a vector of coordinates for each axis.
        dim: the axis or axes; all by default.
        edge_order: 1 or 2, the order of the differences at both ends.

    Returns:
        For each axis a tensor of the input's shape.

    Raises:
        ArgumentError: there is no such axis, the order is neither, or `spacing` has not one entry for each
            axis.
        ShapeError: there are too few samples, or coordinates do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.gradient(dl.tensor([1.0, 4.0, 9.0]))[0].tolist()
        [3.0, 4.0, 5.0]
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"[gradient] edge_order must be 1 or 2, got {edge_order!r}")
    rank = len(input.shape)
    chosen = range(rank) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = [one_axis("gradient", axis, rank) for axis in chosen]
    distance = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [distance] * len(axes)
    if len(steps) != len(axes):
        raise ArgumentError(f"[gradient] expected a spacing for each of {len(axes)} axes, got {len(steps)}")
    for axis in axes:
        if input.shape[axis] <= edge_order:
            raise ShapeError(
                f"[gradient] expected at least {edge_order + 1} samples along axis {axis} of {input.shape}"
            )
    x = as_float(input)
    return tuple(_derivative(x, axis, step, edge_order) for axis, step in zip(axes, steps, strict=True))


def _derivative(x: Array, axis: int, spacing: Any, edge_order: int) -> Array:
    """The derivative along one axis: means of the slopes on both sides, each weighted by the other's gap."""
    size = x.shape[axis]
    gaps, share_before, share_after = spacing, 0.5, 0.5
    if isinstance(spacing, TensorBase) and spacing.shape:
        if spacing.shape != (size,):
            raise ShapeError(f"[gradient] expected coordinates of shape ({size},), got {spacing.shape}")
        later, earlier = _neighbours(spacing, 0)
        gaps = reshape(later - earlier, size - 1, *(1,) * (len(x.shape) - axis - 1))
        after, before = _neighbours(gaps, 0)
        share_before, share_after = before / (before + after), after / (before + after)
    later, earlier = _neighbours(x, axis)
    slopes = (later - earlier) / gaps
    after, before = _neighbours(slopes, axis)
    inner = before * share_after + after * share_before
    left, right = narrow(slopes, axis, 0, 1), narrow(slopes, axis, size - 2, 1)
    if edge_order == 2:  # the slopes go on as straight as between the middles of both gaps
        bends = after - before
        first, last = bends * share_before, bends * share_after
        left = left - narrow(first, axis, 0, 1)
        right = right + narrow(last, axis, size - 3, 1)
    return cat([left, inner, right], axis)
