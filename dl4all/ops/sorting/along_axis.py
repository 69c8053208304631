"""Sorting along any axis by kernels, with gradients: the axis becomes the last one, and comes back."""

from __future__ import annotations

import math
from typing import Any

from dl4all.ops.core import tape
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.memory.views import contiguous, movedim, reshape
from dl4all.ops.sorting.keys import words
from dl4all.ops.sorting.row_sort import row_order
from dl4all.ops.sorting.selection import select_in_rows, wide_indices


def as_rows(input: Any, axis: int) -> Any:
    """The tensor as contiguous rows along an axis, of shape (rows, size); a 0-d tensor is a row of one."""
    if not input.shape:
        return reshape(input, 1, 1)
    others = (*input.shape[:axis], *input.shape[axis + 1 :])
    return contiguous(reshape(movedim(input, axis, -1), math.prod(others), input.shape[axis]))


def along_axis(rows: Any, shape: Shape, axis: int) -> Any:
    """Rows of any length as a contiguous tensor of `shape` but for that length along an axis."""
    if not shape:
        return reshape(rows, ())
    others = (*shape[:axis], *shape[axis + 1 :])
    return contiguous(movedim(reshape(rows, *others, rows.shape[1]), -1, axis))


def axis_order(x: Any, keep: int, *, descending: bool) -> TensorBase:
    """The order of rows as :func:`row_order` gives it, for any sizes, also 0."""
    if not x.shape[0] or not keep:
        return words(x, (x.shape[0], keep), "sort")
    return row_order(tape.alias(x), keep, descending=descending)


def sorted_along(input: Any, axis: int, keep: int, *, descending: bool) -> tuple[Any, Any]:
    """The first elements of the sorted input along an axis, and their int64 indices."""
    x = as_rows(input, axis)
    order = axis_order(x, keep, descending=descending)
    return selected_along(input, x, order, axis)


def selected_along(input: Any, x: Any, order: TensorBase, axis: int) -> tuple[Any, Any]:
    """The elements of the input's rows `x` that an order names, along an axis, and their int64 indices."""
    values = along_axis(select_in_rows(x, order), input.shape, axis)
    return values, along_axis(wide_indices(order), input.shape, axis)
