"""A module whose interface was checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dl4all.runtime.spirv import SpirvModule

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullProgram:
    __slots__ = ("_backend", "module", "writes")

    def __init__(self, backend: NullBackend, module: SpirvModule) -> None:
        self._backend = backend
        self.module = module
        self.writes = module.interface.writes
        backend.programs.add(self)

    def free(self) -> None:
        if self in self._backend.programs:
            self._backend.forget(self)
            self._backend.programs.discard(self)
            self._backend.count("free program")
