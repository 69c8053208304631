"""The target of compiled kernels: llvmlite, the processor's vectors and registers, fused products."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, NamedTuple

from dl4all.runtime import fork

SETTING = "DL4ALL_CPU_KERNELS"
"""The environment's: ``0`` lets NumPy compute everything."""


class Target(NamedTuple):
    """A processor as kernels see it."""

    name: str  # LLVM's
    features: str  # LLVM's, each with + or -
    vector_bytes: int
    registers: int  # of a vector's size
    fused: bool  # multiplies and adds in one instruction

    def lanes(self, element_bytes: int = 4) -> int:
        """Elements of a vector."""
        return self.vector_bytes // element_bytes

    @property
    def converts_half(self) -> bool:
        """Whether there are instructions that convert float16; LLVM would call functions that nobody has."""
        return "+f16c" in self.features or "+neon" in self.features

    @property
    def instructions(self) -> str:
        """The instruction set that vectors take, by its usual name."""
        return INSTRUCTIONS.get((self.vector_bytes, self.fused), f"{8 * self.vector_bytes} bit")


INSTRUCTIONS = {
    (64, True): "AVX-512",
    (32, True): "AVX2",
    (32, False): "AVX",
    (16, False): "SSE2",
    (16, True): "NEON",
}


@functools.cache
def binding() -> Any:
    """llvmlite's binding, ready for use; None without it, or where the setting says no."""
    if os.environ.get(SETTING, "1") == "0":
        return None
    with fork.excluded:
        try:
            module = importlib.import_module("llvmlite.binding")
        except ImportError:
            return None
        module.initialize_native_target()
        module.initialize_native_asmprinter()
    return module


def version() -> tuple[int, ...]:
    """LLVM's, where there is a compiler."""
    return tuple(binding().llvm_version_info)


@functools.cache
def host() -> Target:
    """This process's processor."""
    llvm = binding()
    with fork.excluded:
        return described(str(llvm.get_host_cpu_name()), dict(llvm.get_host_cpu_features()))


def described(name: str, flags: dict[str, bool]) -> Target:
    """The target with these features.

    >>> described("generic", {"avx": True, "fma": True, "avx512f": False}).lanes()
    8
    """
    arm = flags.get("neon", False)
    wide = all(flags.get(flag, False) for flag in ("avx512f", "avx512vl", "avx512bw", "avx512dq"))
    features = ",".join(f"{'+' if present else '-'}{flag}" for flag, present in sorted(flags.items()))
    vector_bytes = 64 if wide else 32 if flags.get("avx", False) else 16
    return Target(name, features, vector_bytes, 32 if wide or arm else 16, arm or flags.get("fma", False))
