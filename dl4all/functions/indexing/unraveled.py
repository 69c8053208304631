"""Indices along each axis of elements that are named by one number."""

from __future__ import annotations

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core import strides
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.elementwise.rounding import floor_divide, remainder


@export("dl")
def unravel_index(indices: Array, shape: int | Shape) -> tuple[Array, ...]:
    """The indices along each axis of elements that are named by their row-major index.

    Args:
        indices: integers of any shape, from 0 on.
        shape: that of the tensor that they are indices of.

    Returns:
        A tensor of the shape of `indices` for each axis.

    Raises:
        DTypeError: the indices are not integers.
        ArgumentError: a size is negative.

    Example:
        >>> import dl4all as dl
        >>> rows, columns = dl.unravel_index(dl.tensor([1, 5]), (2, 3))
        >>> rows.tolist(), columns.tolist()
        ([0, 1], [1, 2])
    """
    if kind_of(indices.dtype) not in "iu":
        raise DTypeError(f"[unravel_index] expected integers, got {indices.dtype}; convert with .long()")
    sizes = strides.sizes("unravel_index", (shape,))
    if any(size < 0 for size in sizes):
        raise ArgumentError(f"[unravel_index] sizes must not be negative, got {sizes}")
    found = []
    rest = indices
    for size in reversed(sizes):
        found.append(remainder(rest, size))
        rest = floor_divide(rest, size)
    return tuple(reversed(found))
