"""SPIR-V with its specialization constants; Kompute builds the pipeline when buffers are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dl4all.runtime.requirements import check_interface
from dl4all.runtime.spirv import SpirvModule

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend


class KomputeProgram:
    """``users`` are the launches that hold a pipeline of it."""

    __slots__ = ("_backend", "constants", "module", "users", "writes")

    def __init__(self, backend: KomputeBackend, module: SpirvModule, constants: Sequence[int]) -> None:
        check_interface(module, constants, backend.info.limits, backend.features)
        self._backend = backend
        self.module = module
        self.constants = np.array(constants, np.uint32)
        self.writes = module.interface.writes
        self.users: set[Any] = set()
        backend.programs.add(self)

    def free(self) -> None:
        with self._backend.lock:
            for user in tuple(self.users):
                user.free()
            self._backend.programs.discard(self)
