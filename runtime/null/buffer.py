"""A size, and whether it was freed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullBuffer:
    __slots__ = ("_backend", "nbytes")

    def __init__(self, backend: NullBackend, nbytes: int) -> None:
        self._backend = backend
        self.nbytes = nbytes
        backend.buffers.add(self)

    def free(self) -> None:
        if self in self._backend.buffers:
            self._backend.buffers.discard(self)
            self._backend.count("free", self.nbytes)
