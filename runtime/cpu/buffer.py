"""Host memory as a NumPy array of bytes."""

from __future__ import annotations

import numpy as np

from dl4all.runtime.protocols import Bytes


class CpuBuffer:
    """Memory of either kind: here they are one."""

    __slots__ = ("address", "data", "freed")

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.address: int = data.__array_interface__["data"][0]  # where compiled kernels find it
        self.freed = False

    @classmethod
    def empty(cls, nbytes: int) -> CpuBuffer:
        return cls(np.empty(nbytes, np.uint8))

    @property
    def nbytes(self) -> int:
        return self.data.size

    @property
    def mapped(self) -> Bytes:
        return self.data

    def free(self) -> None:
        self.freed = True
        self.data = np.empty(0, np.uint8)
