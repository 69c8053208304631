"""Which kernels NumPy's OpenBLAS multiplies matrices with.

It chooses them when NumPy is imported: those that OPENBLAS_CORETYPE names, or by the processors that its
version knows, and on a newer one it falls back to older kernels. Either way it may multiply with 256-bit
vectors on a processor that has 512.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np

from dl4all.runtime.cpu import processor
from dl4all.runtime.cpu.processor import AVX512

CHOICE = "OPENBLAS_CORETYPE"  # the environment's
NAMES = ("openblas_get_corename64_", "scipy_openblas_get_corename64_", "openblas_get_corename")
NARROW = frozenset({"Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen"})
WIDE = "SkylakeX"  # the name of kernels that need no more than AVX512


def kernels() -> str:
    """OpenBLAS's name for the processor that it takes this one for; empty where NumPy has another BLAS."""
    for file in sorted((Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*")):
        library = ctypes.CDLL(str(file))
        for name in NAMES:
            if hasattr(library, name):
                get = getattr(library, name)
                get.restype = ctypes.c_char_p
                return str(get().decode())
    return ""


def better(chosen: str) -> str:
    """The value that :data:`CHOICE` should have for wider kernels; empty if they are as wide as can be."""
    return WIDE if chosen in NARROW and processor.flags() >= AVX512 else ""


def asked_for() -> str:
    """The kernels that the environment names; empty where OpenBLAS chooses by itself."""
    return os.environ.get(CHOICE, "")
