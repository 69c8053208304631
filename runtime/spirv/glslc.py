"""GLSL to SPIR-V through the ``glslc`` program, where libshaderc is missing."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dl4all.errors import ShaderError

# Not -O: drivers optimise as well, and on unrolled kernels it takes seconds and gains nothing.
FLAGS = ("-fshader-stage=compute", "--target-env=vulkan1.1", "--target-spv=spv1.3")
MAX_BYTES = 512 << 20  # a plain shader takes 40 MiB


def identity() -> str | None:
    """Which ``glslc`` this is, or None where it is not installed."""
    program = shutil.which("glslc")
    return _version(program) if program else None


def compile(file: Path, defines: Sequence[tuple[str, str]], include_dirs: Sequence[Path]) -> bytes:
    """Compile a GLSL file to SPIR-V; includes are found beside the includer, then in the folders."""
    macros = [f"-D{name}={value}" for name, value in defines]
    folders = [f"-I{folder}" for folder in include_dirs]
    command = ["glslc", *FLAGS, *macros, *folders, "-o", "-", str(file)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            _limit_memory(process.pid)
            code, message = process.communicate()
    except OSError as error:
        raise ShaderError(f"cannot run glslc: {error}") from error
    if process.returncode != 0:
        silent = f"glslc ended with {process.returncode} and no message; do includes go in a circle?"
        raise ShaderError(message.decode(errors="replace").strip() or silent)
    return code


def _limit_memory(pid: int) -> None:
    # A circle of includes, which glslc does not notice, would otherwise take all the memory of the machine.
    if sys.platform == "linux":
        import resource

        resource.prlimit(pid, resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


@functools.cache
def _version(program: str) -> str | None:
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return "glslc " + " ".join(run.stdout.split())
