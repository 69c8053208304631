"""Validation and preparation of index operands.

Indices are read on the host: one that is out of range is refused before a kernel runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, TooLargeError
from dl4all.ops.core import strides
from dl4all.ops.core.tensor_base import TensorBase, from_host

NDArray = npt.NDArray[Any]


class Indices:
    """Indices into one axis, from 0 on; a negative index selects nothing.

    >>> Indices([2, -1, 2]).last_occurrences().array
    array([-1, -1,  2], dtype=int32)
    """

    __slots__ = ("_on_device", "array")

    def __init__(self, array: Any) -> None:
        indices = np.asarray(array).reshape(-1)
        if not indices.size or -(2**31) <= indices.min() <= indices.max() < 2**31:
            indices = indices.astype(np.int32, copy=False)
        self.array: npt.NDArray[Any] = indices
        self._on_device: TensorBase | None = None

    @classmethod
    def of(cls, index: Any) -> Indices:
        """The argument itself if it is an instance already."""
        return index if isinstance(index, Indices) else cls(index)

    def __len__(self) -> int:
        return len(self.array)

    def on(self, like: TensorBase) -> TensorBase:
        """An int32 tensor of the indices on the device of `like`; the latest upload is kept.

        Raises:
            TooLargeError: an index has more bits.
        """
        if self.array.itemsize > 4:
            raise TooLargeError(f"[index] kernels take indices of 32 bits, and {self.array.max()} has more")
        if self._on_device is None or self._on_device.device is not like.device:
            self._on_device = from_host(type(like).result_class, self.array, like.device, copy=False)
        return self._on_device

    def last_occurrences(self) -> Indices:
        """The indices with all but the last occurrence of each value replaced by -1."""
        backwards = self.array[::-1]
        _, first = np.unique(backwards, return_index=True)
        if len(first) == len(backwards):
            return self
        unique = np.full(len(backwards), -1, np.int32)
        unique[first] = backwards[first]
        return Indices(unique[::-1])

    def group_positions(self, size: int) -> tuple[NDArray, NDArray]:
        """Group the positions 0 to ``len(self) - 1`` by their index.

        Returns:
            The positions of all indices that are not negative, sorted by index (stable), and the ``size + 1``
            boundaries of the groups in them.
        """
        order = np.argsort(self.array, kind="stable").astype(np.int32)
        negatives = int(np.count_nonzero(self.array < 0))
        counts = np.bincount(self.array[order[negatives:]], minlength=size)
        starts = np.zeros(size + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        return order[negatives:], starts


def integer_indices(name: str, index: Any) -> NDArray:
    """Indices as an integer array on the host.

    Raises:
        DTypeError: they are no integers.
    """
    array = index.on_host() if isinstance(index, TensorBase) else np.asarray(index)
    if array.size == 0 and not isinstance(index, (TensorBase, np.ndarray)):
        array = array.astype(np.int64)  # NumPy makes floats of an empty list
    if array.dtype.kind not in "iu":
        raise DTypeError(f"[{name}] expected indices of integers, got {array.dtype}; use .to('int64')")
    return array


def checked_indices(name: str, index: Any, size: int, *, negative: bool = False) -> NDArray:
    """Indices from 0 to `size` - 1 as an integer array on the host.

    Args:
        name: of the op, for errors.
        index: a tensor, an array or a list.
        size: of the axis.
        negative: whether indices from -`size` on are allowed and count from the end.

    Raises:
        ArgumentError: one is out of range.
        DTypeError: they are no integers.
    """
    array = integer_indices(name, index)
    low = -size if negative else 0
    if array.size and (array.min() < low or array.max() >= size):
        wrong = array[(array < low) | (array >= size)].reshape(-1)[0]
        raise ArgumentError(f"[{name}] index {wrong} is out of range for an axis of size {size}")
    return np.where(array < 0, array + size, array) if negative else array


def flatten_indices(name: str, indices: Sequence[Any], sizes: Sequence[int]) -> NDArray:
    """Broadcast indices into several axes and turn them into indices into the flattened axes.

    Raises:
        ArgumentError: one is out of range, or they do not broadcast.
    """
    arrays = [checked_indices(name, index, n, negative=True) for index, n in zip(indices, sizes, strict=True)]
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise ArgumentError(f"[{name}] indices of shapes {shapes} do not broadcast") from None
    flat = np.zeros(arrays[0].shape, np.int64)
    for array, size in zip(arrays, sizes, strict=True):
        flat = flat * size + array
    return flat


def untracked_view(tensor: TensorBase, key: Any) -> Any:
    """The view that a key of ints, slices, None and ... selects, without a gradient history."""
    return tensor.as_strided(*strides.basic(key, tensor.shape, tensor.strides, tensor.offset))
