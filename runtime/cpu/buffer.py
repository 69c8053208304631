"""Host memory as a NumPy array of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.runtime.protocols import Bytes

ALIGNMENT = 64
"""Bytes: of a cache line, and of the longest vectors, which take twice as long where they cross lines."""


def aligned_bytes(nbytes: int) -> tuple[Bytes, int]:
    """Undefined bytes that begin a cache line, of an array that nobody else knows, and their address."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    address: int = memory.__array_interface__["data"][0]
    start = -address % ALIGNMENT
    return memory[start : start + nbytes], address + start


def aligned_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous copy of an array that begins a cache line."""
    if not array.nbytes:
        return np.array(array, order="C")
    copy: npt.NDArray[Any] = np.ndarray(array.shape, array.dtype, aligned_bytes(array.nbytes)[0])
    copy[...] = array
    return copy


class CpuBuffer:
    """Memory of either kind: here they are one."""

    __slots__ = ("address", "data", "freed", "own")

    def __init__(self, data: Bytes, address: int | None = None) -> None:
        """
        Args:
            data: the memory.
            address: where it begins, if the memory is this buffer's own.
        """
        self.data = data
        self.own = address is not None
        if address is None:
            address = data.__array_interface__["data"][0]
        self.address: int = address  # where compiled kernels find it
        self.freed = False

    @classmethod
    def empty(cls, nbytes: int) -> CpuBuffer:
        return cls(*aligned_bytes(nbytes))

    @property
    def nbytes(self) -> int:
        return self.data.size

    @property
    def mapped(self) -> Bytes:
        return self.data

    def free(self) -> None:
        self.freed = True
        self.data = np.empty(0, np.uint8)
