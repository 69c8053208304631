"""Sequences of different lengths: padded to one tensor, or packed so that nothing is computed on padding.

The functions have the names of ``torch.nn.utils.rnn``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all import ops
from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.indexing.indices import Indices
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

NDArray = npt.NDArray[Any]


class PackedSequence(NamedTuple):
    """Packed sequences: the first elements of all sequences, then all second elements, and so on.

    The sequences are sorted from the longest to the shortest. Created by :func:`pack_padded_sequence`.

    Example:
        >>> import dl4all as dl
        >>> packed = dl.nn.utils.rnn.pack_sequence([dl.tensor([1.0, 2.0]), dl.tensor([3.0])])
        >>> packed.data.tolist(), packed.batch_sizes
        ([1.0, 3.0, 2.0], (2, 1))
    """

    data: Tensor  # (sum of the lengths, ...)
    batch_sizes: tuple[int, ...]  # how many sequences have a first element, how many a second one, ...
    sorted_indices: tuple[int, ...] | None = None  # the sequences' indices, from the longest to the shortest
    unsorted_indices: tuple[int, ...] | None = None  # the position of each sequence in that order


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int] | NDArray,
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack sequences that are padded to the same length.

    Args:
        input: shape (T, N, ...), or (N, T, ...) with `batch_first`.
        lengths: N ints from 1 to T.
        batch_first: which axis comes first.
        enforce_sorted: whether the lengths must not increase. If not, the sequences are sorted;
            :func:`pad_packed_sequence` and recurrent layers restore the order.

    Raises:
        ShapeError: the number of lengths is not N.
        ArgumentError: a length is out of range, or the lengths increase.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
        >>> packed = dl.nn.utils.rnn.pack_padded_sequence(x, [3, 1], batch_first=True)
        >>> packed.data.tolist(), packed.batch_sizes
        ([1.0, 4.0, 2.0, 3.0], (2, 1, 1))
    """
    name = "pack_padded_sequence"
    if len(input.shape) < 2:
        raise ShapeError(f"[{name}] expected an input of shape (T, N, ...), got {input.shape}")
    steps, count = input.shape[:2][::-1] if batch_first else input.shape[:2]
    sizes = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths, np.int64)
    if sizes.shape != (count,):
        raise ShapeError(f"[{name}] expected a length for each of {count} sequences, got {sizes.shape}")
    if not count or sizes.min() < 1 or sizes.max() > steps:
        raise ArgumentError(f"[{name}] lengths must be from 1 to {steps}, got {sizes.tolist()}")
    order = np.argsort(-sizes, kind="stable")
    if enforce_sorted and (np.diff(sizes) > 0).any():
        raise ArgumentError(
            f"[{name}] lengths must fall, got {sizes.tolist()}; pass enforce_sorted=False to have them sorted"
        )
    batch_sizes = [int((sizes > t).sum()) for t in range(int(sizes.max()))]
    by_step, by_sequence = (1, steps) if batch_first else (count, 1)  # the distance between their rows
    rows = np.concatenate([t * by_step + order[:n] * by_sequence for t, n in enumerate(batch_sizes)])
    data = ops.index_select(ops.reshape(input, steps * count, *input.shape[2:]), 0, rows)
    if enforce_sorted:
        return PackedSequence(data, tuple(batch_sizes))
    back = np.argsort(order, kind="stable")
    return PackedSequence(data, tuple(batch_sizes), tuple(order.tolist()), tuple(back.tolist()))


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`pack_padded_sequence`: the padded tensor and the lengths (int64).

    Args:
        sequence: the packed sequence.
        batch_first: which axis of the result comes first.
        padding_value: the value after the end of a sequence.
        total_length: how many time steps to pad to; by default those of the longest sequence.

    Raises:
        ArgumentError: a sequence is longer than `total_length`.

    Example:
        >>> import dl4all as dl
        >>> packed = dl.nn.utils.rnn.pack_sequence([dl.tensor([1.0, 2.0]), dl.tensor([3.0])])
        >>> padded, lengths = dl.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
        >>> padded.tolist(), lengths.tolist()
        ([[1.0, 2.0], [3.0, 0.0]], [2, 1])
    """
    sizes = np.array(sequence.batch_sizes)
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ArgumentError(
            f"[pad_packed_sequence] total_length {steps} is less than the longest sequence's {len(sizes)}"
        )
    table = np.full((steps, sizes[0]), -1)
    starts = np.cumsum([0, *sizes[:-1]])
    for t, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        table[t, :size] = np.arange(start, start + size)
    if sequence.unsorted_indices is not None:
        table = table[:, list(sequence.unsorted_indices)]
    lengths = from_numpy((table >= 0).sum(0))
    return _padded(sequence.data, table.T if batch_first else table, padding_value), lengths


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Pad sequences of different lengths to one tensor.

    Args:
        sequences: of shape (length, ...).
        batch_first: whether the result has shape (N, T, ...) rather than (T, N, ...).
        padding_value: the value after, or before, the shorter sequences.
        padding_side: ``"right"`` or ``"left"``.

    Raises:
        ArgumentError: there is no sequence, or no such side.
        ShapeError: the shapes differ in more than the length.

    Example:
        >>> import dl4all as dl
        >>> parts = [dl.tensor([1.0, 2.0]), dl.tensor([3.0])]
        >>> dl.nn.utils.rnn.pad_sequence(parts, batch_first=True).tolist()
        [[1.0, 2.0], [3.0, 0.0]]
    """
    if not sequences:
        raise ArgumentError("[pad_sequence] expected at least one sequence")
    if padding_side not in ("right", "left"):
        raise ArgumentError(f"[pad_sequence] padding_side must be 'right' or 'left', got {padding_side!r}")
    sizes = [sequence.shape[0] for sequence in sequences]
    steps = max(sizes)
    table = np.full((len(sizes), steps), -1)
    start = 0
    for b, size in enumerate(sizes):
        first = 0 if padding_side == "right" else steps - size
        table[b, first : first + size] = np.arange(start, start + size)
        start += size
    return _padded(ops.cat(sequences), table if batch_first else table.T, padding_value)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths, see :func:`pack_padded_sequence`.

    Raises:
        ArgumentError, ShapeError

    Example:
        >>> import dl4all as dl
        >>> packed = dl.nn.utils.rnn.pack_sequence([dl.tensor([1.0, 2.0, 3.0]), dl.tensor([4.0])])
        >>> packed.data.tolist(), packed.batch_sizes
        ([1.0, 4.0, 2.0, 3.0], (2, 1, 1))
    """
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def _padded(data: Tensor, table: NDArray, value: float) -> Tensor:
    """The rows of `data` at the indices of a table; `value` where the index is -1."""
    inner = data.shape[1:]
    matrix = ops.reshape(data, 1, data.shape[0], math.prod(inner))
    rows = ops.reshape(ops.take_rows(matrix, Indices(table)), *table.shape, *inner)
    if value == 0 or (table >= 0).all():
        return rows
    missing = np.where(table < 0, value, 0).reshape(*table.shape, *(1,) * len(inner))
    return rows + from_numpy(missing.astype(data.dtype), data.device)
