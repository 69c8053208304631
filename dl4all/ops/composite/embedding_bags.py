"""Rows of a table taken together."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.embeddings import embedding
from dl4all.ops.indexing.indices import Indices, integer_indices
from dl4all.ops.indexing.rows import take_rows, take_rows_backward
from dl4all.ops.memory.views import reshape, unsqueeze
from dl4all.ops.reduce.extrema import amax

MODES = ("sum", "mean", "max")


@export("F")
@reads("input", "offsets")
def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    *,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """The sums, means or largest elements of rows of a table, bag by bag.

    Args:
        input: numbers of rows, ints: of shape (bags, rows), or all bags one behind the other in one axis.
        weight: the table, shape (rows, columns).
        offsets: where each bag begins, if the input has one axis.
        mode: "sum", "mean" or "max"; of an empty bag all are 0.
        per_sample_weights: of the input's shape, what each row is multiplied by; for "sum".
        include_last_offset: whether the last offset is the end of the last bag.
        padding_idx: a row that does not count.

    Returns:
        Shape (bags, columns).

    Raises:
        ArgumentError: a number is out of range, or there is no such mode.
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
    numbers = integer_indices(name, input)
    if (numbers.ndim == 1) == (offsets is None) or numbers.ndim not in (1, 2):
        raise ShapeError(
            f"[{name}] expected bags of shape (bags, rows), or one axis and offsets, got {numbers.shape}"
        )
    if offsets is None:
        starts, last = np.arange(numbers.shape[0] + 1) * numbers.shape[1], True
    else:
        starts, last = integer_indices(name, offsets).reshape(-1), include_last_offset
    flat = numbers.reshape(-1)
    ends = starts[1:] if last else np.append(starts[1:], flat.size)
    starts = starts[:-1] if last else starts
    if starts.size and (starts[0] != 0 or (ends < starts).any() or ends[-1] != flat.size):
        raise ArgumentError(f"[{name}] offsets must rise from 0 to {flat.size}, got {starts.tolist()}")
    bag = np.repeat(np.arange(len(starts)), ends - starts)
    if padding_idx is not None:
        bag = np.where(flat == padding_idx % weight.shape[0], -1, bag)
    rows = embedding(flat, weight, padding_idx)
    if mode == "max":
        return _largest(rows, bag, len(starts))
    if per_sample_weights is not None:
        if per_sample_weights.shape != numbers.shape:
            raise ShapeError(
                f"[{name}] expected per_sample_weights of shape {numbers.shape}, "
                f"got {per_sample_weights.shape}"
            )
        rows = rows * reshape(per_sample_weights, flat.size, 1)
    found = take_rows_backward(unsqueeze(rows, 0), Indices(bag), len(starts))
    sums = reshape(found, len(starts), weight.shape[1])
    if mode == "sum":
        return sums
    counts = np.maximum(np.bincount(bag[bag >= 0], minlength=len(starts)), 1)
    return sums / _there(weight, counts[:, None].astype(weight.dtype))


def _there(like: Any, array: Any) -> Any:
    return from_host(type(like).result_class, array, like.device, copy=False)


def _largest(rows: Any, bag: Any, bags: int) -> Any:
    """The largest elements of each bag, whose rows are laid out in lines of one length."""
    counts = np.bincount(bag[bag >= 0], minlength=bags)
    longest = max(int(counts.max(initial=0)), 1)
    order = np.argsort(bag, kind="stable")[int((bag < 0).sum()) :]
    lines = np.full((bags, longest), -1)
    firsts = np.cumsum(counts) - counts
    lines[bag[order], np.arange(len(order)) - firsts[bag[order]]] = order
    taken = reshape(take_rows(unsqueeze(rows, 0), Indices(lines)), bags, longest, rows.shape[1])
    there = _there(rows, np.ascontiguousarray((lines >= 0)[:, :, None]))
    found = amax(where(there, taken, -np.inf), 1)
    return where(_there(rows, (counts > 0)[:, None]), found, 0.0)
