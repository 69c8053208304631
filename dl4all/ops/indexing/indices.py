"""Which elements an op is to take, brought into a form that kernels can trust.

Indices are looked at on the host: one that is out of range is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.tensor_base import TensorBase, from_host

NDArray = npt.NDArray[Any]


class Indices:
    """Places along an axis, from 0 on; a negative one stands for none.

    >>> Indices([2, -1, 2]).last().array
    array([-1, -1,  2], dtype=int32)
    """

    __slots__ = ("_there", "array")

    def __init__(self, array: Any) -> None:
        self.array: npt.NDArray[np.int32] = np.asarray(array, np.int32).reshape(-1)
        self._there: TensorBase | None = None

    @classmethod
    def of(cls, index: Any) -> Indices:
        return index if isinstance(index, Indices) else cls(index)

    def __len__(self) -> int:
        return len(self.array)

    def on(self, like: TensorBase) -> TensorBase:
        """As an int32 tensor on the device of another one."""
        if self._there is None or self._there.device is not like.device:
            self._there = from_host(type(like).result_class, self.array, like.device, copy=False)
        return self._there

    def last(self) -> Indices:
        """Of places that are named more than once only the last time."""
        back = self.array[::-1]
        _, first = np.unique(back, return_index=True)
        if len(first) == len(back):
            return self
        kept = np.full(len(back), -1, np.int32)
        kept[first] = back[first]
        return Indices(kept[::-1])

    def plan(self, size: int) -> tuple[NDArray, NDArray]:
        """Who goes where: positions sorted by their place, and where each of `size` places begins."""
        order = np.argsort(self.array, kind="stable").astype(np.int32)
        none = int(np.count_nonzero(self.array < 0))
        counts = np.bincount(self.array[order[none:]], minlength=size)
        starts = np.zeros(size + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        return order[none:], starts


def integers(name: str, index: Any) -> NDArray:
    """Indices on the host.

    Raises:
        DTypeError: they are no integers.
    """
    array = index.on_host() if isinstance(index, TensorBase) else np.asarray(index)
    if array.size == 0 and not isinstance(index, (TensorBase, np.ndarray)):
        array = array.astype(np.int64)  # an empty list is one of floats to NumPy
    if array.dtype.kind not in "iu":
        raise DTypeError(f"[{name}] expected indices of integers, got {array.dtype}; use .to('int64')")
    return array


def checked(name: str, index: Any, size: int, *, negative: bool = False) -> NDArray:
    """Indices from 0 to `size` - 1 on the host; with `negative`, those that count from the end too.

    Raises:
        ArgumentError: one is out of range.
        DTypeError: they are no integers.
    """
    array = integers(name, index)
    low = -size if negative else 0
    if array.size and (array.min() < low or array.max() >= size):
        wrong = array[(array < low) | (array >= size)].reshape(-1)[0]
        raise ArgumentError(f"[{name}] index {wrong} is out of range for an axis of size {size}")
    return np.where(array < 0, array + size, array) if negative else array


def joint(name: str, parts: Sequence[Any], sizes: Sequence[int]) -> NDArray:
    """Indices into several axes, broadcast with each other, as indices into these axes flattened.

    Raises:
        ArgumentError: one is out of range, or they do not broadcast.
    """
    arrays = [checked(name, part, size, negative=True) for part, size in zip(parts, sizes, strict=True)]
    try:
        arrays = list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in arrays)
        raise ArgumentError(f"[{name}] indices of shapes {shapes} do not broadcast") from None
    flat = np.zeros(arrays[0].shape, np.int64)
    for array, size in zip(arrays, sizes, strict=True):
        flat = flat * size + array
    return flat
