"""SPIR-V with its specialization constants; Kompute builds the pipeline when buffers are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dl4all.runtime.spirv import Module


@dataclass(frozen=True, eq=False)
class KomputeProgram:
    module: Module
    constants: npt.NDArray[np.uint32] = field(repr=False)

    @classmethod
    def create(cls, module: Module, constants: Sequence[int]) -> KomputeProgram:
        return cls(module, np.array(constants, np.uint32))
