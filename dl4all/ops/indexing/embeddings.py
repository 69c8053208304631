"""Embedding tables and one-hot encoding."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.limits import check_shape, host_memory, integer
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Array, TensorBase, contiguous_strides, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.indexing import device_indices
from dl4all.ops.indexing.host_selection import select
from dl4all.ops.indexing.indices import (
    Indices,
    NDArray,
    checked_indices,
    indices_into,
    integer_indices,
    out_of_range,
)
from dl4all.ops.indexing.rows import take_rows, take_rows_backward, write_rows
from dl4all.ops.memory.copy import fill_with
from dl4all.ops.memory.views import expand, reshape

T = TypeVar("T", bound=TensorBase)


def table_rows(input: Array, weight: T, padding_idx: int | None, by_frequency: bool = False) -> T:
    """Look up rows of a table: :func:`embedding`.

    Args:
        input: row numbers, ints of any shape.
        weight: the table, shape (rows, columns).
        padding_idx: a row that gets no gradient.
        by_frequency: whether gradients are divided by how often their row is looked up.

    Raises:
        ArgumentError: a number is out of range.
        ShapeError: the table is no matrix.
    """
    if len(weight.shape) != 2:
        raise ShapeError(f"[embedding] expected a table of shape (rows, columns), got {weight.shape}")
    rows, columns = weight.shape
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(f"[embedding] padding_idx {padding_idx} is out of range for {rows} rows")
    if not by_frequency and isinstance(input, TensorBase):
        trained = None if padding_idx is None else partial(_without, padding_idx % rows)
        error = partial(out_of_range, "embedding", rows)
        selected: T | None = select("embedding", weight, input, 0, error, trained=trained)
        if selected is not None:
            return selected
    indices, shape = indices_into("embedding", input, rows, weight)
    table = tape.alias(weight)
    result: T = reshape(take_rows(reshape(table, 1, rows, columns), indices), (*shape, columns))
    shares = _shares(input, rows) if by_frequency else None

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        trained = indices if padding_idx is None else indices.without(padding_idx % rows)
        g = reshape(grads[0], 1, len(trained), columns)
        if shares is not None:
            g = mul(g, from_host(type(g).result_class, shares.astype(g.dtype), g.device, copy=False))
        return [reshape(take_rows_backward(g, trained, rows), rows, columns)]

    tape.add_node("embedding", [weight], [result], backward, single_use=True)
    return result


def _without(number: int, indices: Indices) -> Indices:
    return indices.without(number)


def _shares(input: Array, rows: int) -> NDArray:
    """For each row number, one divided by how often it occurs: a column."""
    numbers = integer_indices("embedding", input).reshape(-1)
    return np.asarray(1 / np.bincount(numbers, minlength=rows)[numbers][:, None])


@export("F")
@reads("input")
def one_hot(input: Array, num_classes: int = -1) -> Array:
    """One-hot encoding along a new last axis: 1 at the index that each int names, 0 elsewhere; int64.

    Args:
        input: a tensor of ints from 0 on.
        num_classes: the size of that axis; with -1 the largest int plus one.

    Raises:
        ArgumentError: an int is out of range, or `num_classes` is.
        OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.one_hot(dl.tensor([1, 0]), 3).tolist()
        [[0, 1, 0], [1, 0, 0]]
    """
    if num_classes != -1 and device_indices.stays(input, input):
        table = _one_hot_on_device(input, integer("one_hot", "num_classes", num_classes, least=1))
        if table is not None:
            return table
    numbers = integer_indices("one_hot", input)
    if num_classes == -1:
        if numbers.size == 0:
            raise ArgumentError("[one_hot] num_classes must be given for a tensor of no elements")
        num_classes = int(numbers.max()) + 1
    integer("one_hot", "num_classes", num_classes, least=1)
    check_shape("one_hot", (*numbers.shape, num_classes))
    numbers = checked_indices("one_hot", numbers, num_classes)
    with host_memory("one_hot"):
        table = (numbers[..., None] == np.arange(num_classes)).astype(np.int64)
        return from_host(type(input).result_class, table, input.device, copy=False)


@kernel_function("one_hot")
def _one_hot_on_device(input: TensorBase, num_classes: int) -> TensorBase | None:
    """:func:`one_hot` by kernels; None where they do not take the input."""
    shape = check_shape("one_hot", (*input.shape, num_classes))
    error = partial(out_of_range, "one_hot", num_classes)
    grid = contiguous_strides(shape)[:-1]
    if math.prod(shape) >= device_indices.MOST:
        return None
    places = device_indices.checked(input, num_classes, error, grid=grid)
    if places is None:
        return None
    table: TensorBase = empty(type(input).result_class, shape, np.dtype("int64"), input.device, "one_hot")
    one = empty(type(input).result_class, (1, 1), table.dtype, input.device, "one_hot")
    fill_with(table, 0)
    fill_with(one, 1)
    column = table.strided_view((table.numel(), 1), (1, 1), 0)
    write_rows(column, expand(one, (places.numel(), 1)), Indices.of_checked(places))
    return table
