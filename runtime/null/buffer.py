"""A size, and whether it was freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.runtime.protocols import Bytes, MemoryKind

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullBuffer:
    __slots__ = ("_backend", "_memory", "kind", "nbytes")

    def __init__(self, backend: NullBackend, nbytes: int, kind: MemoryKind) -> None:
        if kind not in get_args(MemoryKind):
            raise ArgumentError(f"[null] no memory of kind {kind!r}; use {' or '.join(get_args(MemoryKind))}")
        self._backend = backend
        self._memory: Bytes | None = None
        self.kind = kind
        self.nbytes = nbytes
        backend.buffers.add(self)

    @property
    def mapped(self) -> Bytes | None:
        """For kind ``host`` memory that nothing else looks at, there from the first time it is asked for."""
        if self.kind == "host" and self._memory is None:
            self._memory = np.zeros(self.nbytes, np.uint8)
        return self._memory

    def free(self) -> None:
        if self in self._backend.buffers:
            self._backend.forget(self)
            self._backend.buffers.discard(self)
            self._memory = np.empty(0, np.uint8) if self.kind == "host" else None
            self._backend.count("free", self.nbytes)
