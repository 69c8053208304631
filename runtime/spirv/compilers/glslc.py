"""GLSL to SPIR-V through the ``glslc`` program, where libshaderc is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dl4all.runtime.spirv.compilers import subprocess

# Not -O: drivers optimise as well, and on unrolled kernels it takes seconds and gains nothing.
FLAGS = ("-fshader-stage=compute", "--target-env=vulkan1.1", "--target-spv=spv1.3")


def identity() -> str | None:
    """Which ``glslc`` this is, or None where it is not installed."""
    return subprocess.version("glslc")


def compile(file: Path, defines: Sequence[tuple[str, str]], include_dirs: Sequence[Path]) -> bytes:
    """Compile a GLSL file to SPIR-V; includes are found beside the includer, then in the folders."""
    macros = [f"-D{name}={value}" for name, value in defines]
    folders = [f"-I{folder}" for folder in include_dirs]
    ended = subprocess.run(["glslc", *FLAGS, *macros, *folders, "-o", "-", str(file)])
    if ended.status != 0:
        raise subprocess.complaint("glslc", ended.status, ended.messages.decode(errors="replace"))
    return ended.output
