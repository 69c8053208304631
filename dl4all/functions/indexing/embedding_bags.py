"""Embeddings, and bags of them: sums, means and maxima of rows of a table."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.host import to_device_of
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.tensor_like import TensorLike
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.host_work import host_work
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing import device_indices
from dl4all.ops.indexing.assignment import setitem
from dl4all.ops.indexing.embeddings import table_rows
from dl4all.ops.indexing.gather_scatter import index_select
from dl4all.ops.indexing.indices import Indices, NDArray, integer_indices
from dl4all.ops.indexing.rows import take_rows, take_rows_backward
from dl4all.ops.memory.conversion import in_float32
from dl4all.ops.memory.views import reshape, unsqueeze
from dl4all.ops.reduce.extrema import amax
from dl4all.ops.reduce.vector_norm import norm

T = TypeVar("T", bound=TensorBase)

MODES = ("sum", "mean", "max")
NORM_OFFSET = 1e-7
"""Added to norms, as PyTorch does, before a row is divided by one."""


@export("F")
@reads("input")
def embedding(
    input: Array,
    weight: T,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> T:
    """Look up rows of a table.

    Args:
        input: row numbers, ints of any shape.
        weight: the table, shape (rows, columns).
        padding_idx: a row that gets no gradient.
        max_norm: rows with a larger norm are scaled down to it, in the table itself, before they are read.
        norm_type: the order of that norm.
        scale_grad_by_freq: whether gradients are divided by how often their row is looked up.
        sparse: is taken for PyTorch's sake: gradients are dense.

    Returns:
        The input's shape, followed by an axis of size `columns`.

    Raises:
        ArgumentError: a number is out of range.
        ShapeError: the table is no matrix.

    Example:
        >>> import dl4all as dl
        >>> table = dl.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> dl.nn.functional.embedding(dl.tensor([1, 0, 1]), table).tolist()
        [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    if isinstance(weight, TensorLike):
        return weight.rows_at(input)
    if max_norm is not None:
        _limit_norms(weight, input, max_norm, norm_type)
    return table_rows(input, weight, padding_idx, scale_grad_by_freq)


def _limit_norms(table: Array, indices: Array, most: float, order: float) -> None:
    """Scale the rows that are looked up down to a norm, in place."""
    used = np.unique(integer_indices("embedding", indices))
    if not used.size:
        return
    with tape.gradients(False):
        rows = index_select(table, 0, used)
        norms = norm(rows, order, 1, True)
        factors = where(norms > most, most / (norms + NORM_OFFSET), 1.0)
        setitem(table, used, rows * factors)


@export("F")
@reads("input", "offsets")
def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """The sum, mean or maximum of the rows of a table in each bag.

    Args:
        input: row indices: of shape (bags, rows), or 1-d with all bags one after the other.
        weight: the table, shape (rows, columns).
        offsets: where each bag begins, if the input is 1-d.
        max_norm, norm_type, scale_grad_by_freq, sparse: as for :func:`embedding`.
        mode: "sum", "mean" or "max"; an empty bag gives 0.
        per_sample_weights: factors of the rows, of the input's shape; for "sum".
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: the index of a row that does not count.

    Returns:
        Shape (bags, columns).

    Raises:
        ArgumentError: an index is out of range, or the mode is unknown.
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> table = dl.tensor([[1.0], [2.0], [4.0]])
        >>> dl.nn.functional.embedding_bag(dl.tensor([0, 1, 2]), table, dl.tensor([0, 2])).tolist()
        [[1.5], [4.0]]
    """
    name = "embedding_bag"
    if mode not in MODES:
        raise ArgumentError(f"[{name}] the mode must be one of {', '.join(MODES)}, got {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f"[{name}] per_sample_weights are for mode 'sum', not for {mode!r}")
    shape = input.shape if isinstance(input, TensorBase) else np.shape(input)
    if (len(shape) == 1) == (offsets is None) or len(shape) not in (1, 2):
        raise ShapeError(
            f"[{name}] expected bags of shape (bags, rows), or one axis and offsets, got {shape}"
        )
    if per_sample_weights is not None and per_sample_weights.shape != shape:
        raise ShapeError(
            f"[{name}] expected per_sample_weights of shape {shape}, got {per_sample_weights.shape}"
        )
    if max_norm is not None:
        _limit_norms(weight, input, max_norm, norm_type)
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    if mode != "max" and _stay_on_host(input, offsets, weight):
        bag_of_row, sizes = _found_bags(input, offsets, weight, include_last_offset, padding)
        rows, bags, indices = (
            table_rows(input, weight, padding_idx, scale_grad_by_freq),
            len(sizes),
            Indices.of_checked(bag_of_row),
        )
    else:
        numbers = integer_indices(name, input)
        flat = numbers.reshape(-1)
        if offsets is None:
            starts, ends = _limits(np.arange(shape[0] + 1) * shape[1], True, flat.size)
        else:
            starts, ends = _limits(integer_indices(name, offsets), include_last_offset, flat.size)
        bag_numbers = _bag_numbers(starts, ends, flat, padding)
        rows = table_rows(flat, weight, padding_idx, scale_grad_by_freq)
        bags, indices = len(starts), Indices(bag_numbers)
        if mode == "max":
            return _max_by_bag(rows, bag_numbers, bags)
        sizes = to_device_of(weight, _sizes(bag_numbers, bags).astype(weight.dtype))
    if per_sample_weights is None:
        sums = take_rows_backward(unsqueeze(rows, 0), indices, bags)
    else:
        factors = reshape(per_sample_weights, len(indices), 1)
        sums = in_float32(lambda x, y: take_rows_backward(unsqueeze(x * y, 0), indices, bags), rows, factors)
    sums = reshape(sums, bags, weight.shape[1])
    return sums if mode == "sum" else sums / sizes


def _limits(offsets: NDArray, has_last: bool, count: int) -> tuple[NDArray, NDArray]:
    """The begin and the end of each of the bags of `count` rows.

    Raises:
        ArgumentError: the offsets do not rise from 0 to `count`.
    """
    starts = offsets.reshape(-1)
    ends = starts[1:] if has_last else np.append(starts[1:], count)
    starts = starts[:-1] if has_last else starts
    rise = starts[0] == 0 and (starts <= ends).all() and ends[-1] == count if starts.size else count == 0
    if not rise:
        raise ArgumentError(f"[embedding_bag] offsets must rise from 0 to {count}, got {starts.tolist()}")
    return starts, ends


def _bag_numbers(starts: NDArray, ends: NDArray, rows: NDArray, padding: int | None) -> NDArray:
    """The bag of each row; -1 for rows that do not count."""
    numbers = np.repeat(np.arange(len(starts)), ends - starts)
    return numbers if padding is None else np.where(rows == padding, -1, numbers)


def _sizes(bag_of_row: NDArray, bags: int) -> NDArray:
    """The number of rows that count in each bag, at least 1: a column."""
    return np.maximum(np.bincount(bag_of_row[bag_of_row >= 0], minlength=bags), 1)[:, None]


def _stay_on_host(input: Array, offsets: Array | None, weight: Array) -> bool:
    """Whether bags are found by work of the CPU that a graph can repeat."""
    return (
        weight.device.is_host
        and device_indices.stays(input, weight)
        and device_indices.stays(offsets, weight)
        and len(input.shape) == 1
    )


def _found_bags(
    input: Array, offsets: Array, weight: Array, has_last: bool, padding: int | None
) -> tuple[Array, Array]:
    """The bag of each row as an int32 of the CPU, and the sizes of bags as a column.

    Raises:
        ArgumentError: the offsets do not rise from 0 to the number of rows.
    """
    cls, device = type(weight).result_class, weight.device
    bag_of_row = empty(cls, input.shape, np.dtype("int32"), device, "embedding_bag")
    sizes = empty(cls, (offsets.numel() - has_last, 1), weight.dtype, device, "embedding_bag")

    def find(rows: NDArray, offsets: NDArray, bag_of_row: NDArray, sizes: NDArray) -> None:
        bag_of_row[...] = _bag_numbers(*_limits(offsets, has_last, len(rows)), rows, padding)
        sizes[...] = _sizes(bag_of_row, len(sizes))

    host_work("embedding_bag", find, [input, offsets], [bag_of_row, sizes])
    return bag_of_row, sizes


def _max_by_bag(rows: Array, bag_of_row: NDArray, bags: int) -> Array:
    """The maximum of each bag, whose rows are first padded to the length of the longest bag."""
    counts = np.bincount(bag_of_row[bag_of_row >= 0], minlength=bags)
    longest = max(int(counts.max(initial=0)), 1)
    order = np.argsort(bag_of_row, kind="stable")[int((bag_of_row < 0).sum()) :]
    bag_starts = np.cumsum(counts) - counts
    padded = np.full((bags, longest), -1)  # row indices, -1 for no row
    padded[bag_of_row[order], np.arange(len(order)) - bag_starts[bag_of_row[order]]] = order
    taken = reshape(take_rows(unsqueeze(rows, 0), Indices(padded)), bags, longest, rows.shape[1])
    is_row = to_device_of(rows, (padded >= 0)[:, :, None])
    maxima = amax(where(is_row, taken, -np.inf), 1)
    return where(to_device_of(rows, (counts > 0)[:, None]), maxima, 0.0)
