"""Host memory as a NumPy array of bytes."""

from __future__ import annotations

import numpy as np

from dl4all.runtime.backend import Bytes


class CpuBuffer:
    __slots__ = ("data",)

    def __init__(self, data: Bytes) -> None:
        self.data = data

    @classmethod
    def empty(cls, nbytes: int) -> CpuBuffer:
        return cls(np.empty(nbytes, np.uint8))

    @property
    def nbytes(self) -> int:
        return self.data.size

    def free(self) -> None:
        self.data = np.empty(0, np.uint8)
