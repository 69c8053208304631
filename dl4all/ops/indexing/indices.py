"""Validation and preparation of index operands.

Indices on the device of what they select from are checked there, and an error about one of them is raised at
the next wait (:mod:`dl4all.scheduler.index_errors`). Others are checked on the host before a kernel runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError, TooLargeError
from dl4all.ops.core import strides
from dl4all.ops.core.arguments.tensor_argument import TensorArgument
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.indexing import device_indices

NDArray = npt.NDArray[Any]


class Indices(TensorArgument):
    """Indices into one axis, from 0 on; a negative index selects nothing.

    Those that a kernel has checked stay on their device, and whoever asks for ``array`` waits for them.

    >>> Indices([2, -1, 2]).last_occurrences(3).array
    array([-1, -1,  2], dtype=int32)
    """

    __slots__ = ("_array", "_on_device", "checked")

    def __init__(self, array: Any) -> None:
        indices = np.asarray(array).reshape(-1)
        if not indices.size or -(2**31) <= indices.min() <= indices.max() < 2**31:
            indices = indices.astype(np.int32, copy=False)
        self._array: npt.NDArray[Any] | None = indices
        self._on_device: TensorBase | None = None
        self.checked = False  # by a kernel

    @classmethod
    def of(cls, index: Any) -> Indices:
        """The argument itself if it is an instance already."""
        return index if isinstance(index, Indices) else cls(index)

    @classmethod
    def of_checked(cls, tensor: TensorBase) -> Indices:
        """Contiguous int32 indices on a device, see :func:`dl4all.ops.indexing.device_indices.checked`."""
        indices = cls.__new__(cls)
        indices._array, indices._on_device, indices.checked = None, tensor, True
        return indices

    @property
    def array(self) -> npt.NDArray[Any]:
        """The indices on the host."""
        if self._array is None:
            assert self._on_device is not None
            self._array = self._on_device.on_host().reshape(-1)
        return self._array

    def __len__(self) -> int:
        if self._array is None:
            assert self._on_device is not None
            return math.prod(self._on_device.shape)
        return len(self._array)

    def tensor_operand(self) -> TensorBase | None:
        return self._on_device if self.checked else None

    def known_elements(self) -> NDArray | None:
        return None if self.checked else self._array

    @classmethod
    def with_elements(cls, array: NDArray) -> Indices:
        return cls(array)

    def stays_on(self, like: TensorBase) -> TensorBase | None:
        """The indices that a kernel has checked, if they are on the device of `like`."""
        tensor = self._on_device
        return tensor if self.checked and tensor is not None and tensor.device is like.device else None

    def on(self, like: TensorBase) -> TensorBase:
        """An int32 tensor of the indices on the device of `like`; the latest upload is kept.

        Raises:
            TooLargeError: an index has more bits.
        """
        if self._on_device is not None and self._on_device.device is like.device:
            return self._on_device
        array = self.array
        if array.itemsize > 4:
            raise TooLargeError(f"[index] kernels take indices of 32 bits, and {array.max()} has more")
        tensor = from_host(type(like).result_class, array, like.device, copy=False)
        self._on_device, self.checked = tensor, False
        return tensor  # type: ignore[no-any-return]

    def check_below(self, size: int, error: Any) -> None:
        """Raise what ``error(index)`` makes of the largest index, if it is not below `size`."""
        if not self.checked and len(self.array) and self.array.max() >= size:
            raise error(self.array.max())

    def without(self, index: int) -> Indices:
        """The indices with those of one value replaced by -1."""
        if self.checked:
            assert self._on_device is not None
            kept = device_indices.without(self._on_device, index)
            if kept is not None:
                return Indices.of_checked(kept)
        return Indices(np.where(self.array == index, -1, self.array))

    def last_occurrences(self, size: int) -> Indices:
        """The indices, below `size`, with all but the last occurrence of each value replaced by -1."""
        if self.checked:
            assert self._on_device is not None
            return Indices.of_checked(device_indices.last_occurrences(self._on_device, size))
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
    if kind_of(array.dtype) not in "iu":
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
        raise out_of_range(name, size, array[(array < low) | (array >= size)].reshape(-1)[0])
    return np.where(array < 0, array + size, array) if negative else array


def out_of_range(name: str, size: int, index: int) -> ArgumentError:
    """The error that an index does not fit an axis."""
    return ArgumentError(f"[{name}] index {index} is out of range for an axis of size {size}")


def indices_into(
    name: str, index: Any, size: int, like: TensorBase, *, negative: bool = False
) -> tuple[Indices, Shape]:
    """Checked indices into an axis of `like`, of `size` elements, and the index's shape.

    Raises:
        ArgumentError: one is out of range; on a device, at the next wait.
        DTypeError: they are no integers.
    """
    if device_indices.stays(index, like):
        error = partial(out_of_range, name, size)
        tensor = device_indices.checked(index, size, error, negative=negative)
        if tensor is not None:
            return Indices.of_checked(tensor), tensor.shape
    array = checked_indices(name, index, size, negative=negative)
    return Indices(array), array.shape


def flat_indices(
    name: str, indices: Sequence[Any], sizes: Sequence[int], like: TensorBase, steps: Shape | None = None
) -> tuple[Indices, Shape]:
    """Broadcast indices into several axes of `like`, turned into indices into the flattened axes.

    Args:
        name: of the op, for errors.
        indices: one for each of the axes.
        sizes: of the axes.
        like: a tensor on the device where the result is needed.
        steps: what an index along each axis counts; by default as the sizes say.

    Returns:
        The indices, and the shape that they broadcast to.

    Raises:
        ArgumentError: one is out of range (on a device, at the next wait), or they do not broadcast.
    """
    if any(device_indices.stays(index, like) for index in indices):
        flat = _flat_on_device(name, indices, sizes, like, steps)
        if flat is not None:
            return Indices.of_checked(flat), flat.shape
    array = flatten_indices(name, indices, sizes, steps)
    return Indices(array), array.shape


def _flat_on_device(
    name: str, indices: Sequence[Any], sizes: Sequence[int], like: TensorBase, steps: Shape | None
) -> TensorBase | None:
    """:func:`flat_indices` by kernels; None where they do not take them."""
    steps = contiguous_strides(tuple(sizes)) if steps is None else steps
    if sum(map(operator.mul, sizes, steps)) >= device_indices.MOST:
        return None
    shape = _broadcast_shape(name, [index.shape for index in indices])
    if 0 in shape:
        return None
    flat: TensorBase | None = None
    for index, size, scale in zip(indices, sizes, steps, strict=True):
        if not isinstance(index, TensorBase) or index.device is not like.device:
            array = checked_indices(name, index, size, negative=True)
            index = from_host(type(like).result_class, array, like.device, copy=True)
        if not device_indices.stays(index, like):
            return None
        spread = index.strided_view(*strides.expanded(shape, index.shape, index.strides), index.offset)
        error = partial(out_of_range, name, size)
        flat = device_indices.checked(spread, size, error, negative=True, scale=scale, onto=flat)
        if flat is None:
            return None
    return flat


def _broadcast_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    """
    Raises:
        ArgumentError: they do not broadcast.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ArgumentError(f"[{name}] indices of shapes {text} do not broadcast") from None


def flatten_indices(
    name: str, indices: Sequence[Any], sizes: Sequence[int], steps: Shape | None = None
) -> NDArray:
    """Broadcast indices into several axes and turn them into indices into the flattened axes.

    Raises:
        ArgumentError: one is out of range, or they do not broadcast.
    """
    arrays = [checked_indices(name, index, n, negative=True) for index, n in zip(indices, sizes, strict=True)]
    shape = _broadcast_shape(name, [array.shape for array in arrays])
    flat = np.zeros(shape, np.int64)
    for array, step in zip(arrays, contiguous_strides(tuple(sizes)) if steps is None else steps, strict=True):
        flat += array * step
    return flat


def untracked_view(tensor: TensorBase, key: Any) -> Any:
    """The view that a key of ints, slices, None and ... selects, without a gradient history."""
    return tensor.strided_view(*strides.basic(key, tensor.shape, tensor.strides, tensor.offset))
