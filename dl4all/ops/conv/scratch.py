"""Memory for what convolutions on the host compute on their way, such as columns of windows."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from dl4all.ops.conv.window import NDArray
from dl4all.ops.core.tensor_base import Shape


class Scratch:
    """Gives new memory each time."""

    def take(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> NDArray:
        """An array with undefined contents; `name` says what for."""
        return np.empty(shape, dtype)

    def zeros(self, name: Hashable, shape: Shape, dtype: np.dtype[Any]) -> NDArray:
        """An array of zeros, of which whoever gives the same name always writes the same elements."""
        return np.zeros(shape, dtype)


class KeptScratch(Scratch):
    """Gives the same memory for the same purpose again, to one convolution after the other.

    New memory costs a page fault for each 4 KiB, as long as it takes to fill them.

    >>> scratch = KeptScratch()
    >>> first = scratch.take("columns", (3, 5), np.dtype("float32"))
    >>> np.shares_memory(first, scratch.take("columns", (4,), np.dtype("float32")))
    True
    """

    def __init__(self) -> None:
        self._memory: dict[str, NDArray] = {}
        self._zeros: dict[Hashable, NDArray] = {}

    def take(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> NDArray:
        count = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < count * dtype.itemsize:
            memory = self._memory[name] = np.empty(count * dtype.itemsize, np.uint8)
        return memory[: count * dtype.itemsize].view(dtype).reshape(shape)

    def zeros(self, name: Hashable, shape: Shape, dtype: np.dtype[Any]) -> NDArray:
        key = name, shape, dtype
        if key not in self._zeros:
            self._zeros[key] = np.zeros(shape, dtype)
        return self._zeros[key]


NEW = Scratch()
