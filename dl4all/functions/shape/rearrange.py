"""Transposes, flips, rotations and ravel."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.indexing.repeat_and_flip import flip
from dl4all.ops.memory.views import contiguous, in_order, reshape, transpose


@export("dl", "Tensor")
def t(input: Array) -> Array:
    """The transpose of a matrix as a view; a tensor with fewer axes unchanged.

    Raises:
        ShapeError: there are more than two axes.

    Example:
        >>> import dl4all as dl
        >>> dl.t(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[1, 3], [2, 4]]
    """
    if len(input.shape) > 2:
        raise ShapeError(f"[t] expected at most two axes, got shape {input.shape}; use .mT or transpose")
    return transpose(input, 0, len(input.shape) - 1) if input.shape else in_order(input, ())


@export("dl", "Tensor")
def adjoint(input: Array) -> Array:
    """A view with the last two axes swapped.

    Example:
        >>> import dl4all as dl
        >>> dl.adjoint(dl.zeros(2, 3, 5)).shape
        (2, 5, 3)
    """
    return transpose(input, -2, -1)


@export("dl", "Tensor")
def ravel(input: Array) -> Array:
    """The elements along a single axis: a view of a contiguous tensor, else a copy.

    Example:
        >>> import dl4all as dl
        >>> dl.ravel(dl.tensor([[1, 2], [3, 4]])).tolist()
        [1, 2, 3, 4]
    """
    return reshape(contiguous(input), -1)


@export("dl", "Tensor")
def fliplr(input: Array) -> Array:
    """A copy with the second axis in reverse order.

    Raises:
        ArgumentError: there is no second axis.

    Example:
        >>> import dl4all as dl
        >>> dl.fliplr(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[2, 1], [4, 3]]
    """
    return flip(input, 1)


@export("dl", "Tensor")
def flipud(input: Array) -> Array:
    """A copy with the first axis in reverse order.

    Raises:
        ArgumentError: there is no axis.

    Example:
        >>> import dl4all as dl
        >>> dl.flipud(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[3, 4], [1, 2]]
    """
    return flip(input, 0)


@export("dl", "Tensor")
def rot90(input: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    """A copy rotated by `k` times 90 degrees, from the first of two axes towards the second.

    Raises:
        ArgumentError: `dims` are not two different axes, or `k` is no int.

    Example:
        >>> import dl4all as dl
        >>> dl.rot90(dl.tensor([[1, 2], [3, 4]])).tolist()
        [[2, 4], [1, 3]]
    """
    integer("rot90", "k", k)
    axes = tuple(strides.axis("rot90", dim, len(input.shape)) for dim in strides.sizes("rot90", (dims,)))
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ArgumentError(f"[rot90] expected two different axes, got {dims!r}")
    first, second = axes
    if k % 4 == 2:
        return flip(input, first, second)
    if k % 4 == 0:
        return input.clone()
    return flip(transpose(input, first, second), first if k % 4 == 1 else second)
