"""Embedding bags: sums, means and maxima of rows of a table."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.composite.host import to_device_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.embeddings import embedding
from dl4all.ops.indexing.indices import Indices, NDArray, integer_indices
from dl4all.ops.indexing.rows import take_rows, take_rows_backward
from dl4all.ops.memory.views import reshape, unsqueeze
from dl4all.ops.reduce.extrema import amax

MODES = ("sum", "mean", "max")


@export("F")
@reads("input", "offsets")
def embedding_bag(
    input: Array,
    weight: Array,
    offsets: Array | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """The sum, mean or maximum of the rows of a table in each bag.

    Args:
        input: row indices: of shape (bags, rows), or 1-d with all bags one after the other.
        weight: the table, shape (rows, columns).
        offsets: where each bag begins, if the input is 1-d.
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
    indices = integer_indices(name, input)
    if (indices.ndim == 1) == (offsets is None) or indices.ndim not in (1, 2):
        raise ShapeError(
            f"[{name}] expected bags of shape (bags, rows), or one axis and offsets, got {indices.shape}"
        )
    if offsets is None:
        starts, has_last_offset = np.arange(indices.shape[0] + 1) * indices.shape[1], True
    else:
        starts, has_last_offset = integer_indices(name, offsets).reshape(-1), include_last_offset
    flat = indices.reshape(-1)
    ends = starts[1:] if has_last_offset else np.append(starts[1:], flat.size)
    starts = starts[:-1] if has_last_offset else starts
    if starts.size and (starts[0] != 0 or (ends < starts).any() or ends[-1] != flat.size):
        raise ArgumentError(f"[{name}] offsets must rise from 0 to {flat.size}, got {starts.tolist()}")
    bags = len(starts)
    bag_of_row = np.repeat(np.arange(bags), ends - starts)
    if padding_idx is not None:
        bag_of_row = np.where(flat == padding_idx % weight.shape[0], -1, bag_of_row)
    rows = embedding(flat, weight, padding_idx)
    if mode == "max":
        return _max_by_bag(rows, bag_of_row, bags)
    if per_sample_weights is not None:
        if per_sample_weights.shape != indices.shape:
            raise ShapeError(
                f"[{name}] expected per_sample_weights of shape {indices.shape}, "
                f"got {per_sample_weights.shape}"
            )
        rows = rows * reshape(per_sample_weights, flat.size, 1)
    sums = take_rows_backward(unsqueeze(rows, 0), Indices(bag_of_row), bags)
    sums = reshape(sums, bags, weight.shape[1])
    if mode == "sum":
        return sums
    counts = np.maximum(np.bincount(bag_of_row[bag_of_row >= 0], minlength=bags), 1)
    return sums / to_device_of(weight, counts[:, None].astype(weight.dtype))


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
