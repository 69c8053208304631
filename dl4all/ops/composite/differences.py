"""Finite differences, and integration by the trapezoidal rule."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.elementwise.logic import logical_xor
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.memory.parts import narrow
from dl4all.ops.memory.views import reshape
from dl4all.ops.reduce.reduction_kernel import one_axis
from dl4all.ops.reduce.scan import cumsum
from dl4all.ops.reduce.sums import sum


@export("dl", "Tensor")
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
        result = logical_xor(later, earlier) if result.dtype.kind == "b" else later - earlier
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
