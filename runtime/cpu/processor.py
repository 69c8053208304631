"""The abilities of the machine's processor, as Linux tells."""

from __future__ import annotations

import functools
import os
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
AVX512 = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
MESA_OVERRIDE = "GALLIUM_OVERRIDE_CPU_CAPS"  # all its values name less than AVX-512


def flags() -> frozenset[str]:
    """The names of the processor's instruction sets and other features; empty where it is not told."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return next(
        (frozenset(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), frozenset()
    )


@functools.cache
def llvmpipe_has_avx512() -> bool:
    """Whether llvmpipe generates code with AVX-512, which has twice the registers and masks for lanes."""
    return not os.environ.get(MESA_OVERRIDE) and flags() >= AVX512
