"""GLSL to SPIR-V through the ``glslangValidator`` program: Ubuntu 22.04 has no shaderc."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dl4all.runtime.spirv.compilers import subprocess

FLAGS = ("-V", "-S", "comp", "--target-env", "vulkan1.1")  # vulkan1.1 means SPIR-V 1.3
MESSAGE = re.compile(r"(ERROR|WARNING): (.+?:\d+): ")


def identity() -> str | None:
    """Which ``glslangValidator`` this is, or None where it is not installed."""
    return subprocess.version("glslangValidator")


def compile(file: Path, defines: Sequence[tuple[str, str]], include_dirs: Sequence[Path]) -> bytes:
    """Compile a GLSL file to SPIR-V; includes are found beside the includer, then in the folders."""
    macros = [f"-D{name}={value}" for name, value in defines]
    folders = [f"-I{folder}" for folder in include_dirs]
    with tempfile.TemporaryDirectory() as folder:  # it writes no module to its output
        result = Path(folder) / "shader.spv"
        ended = subprocess.run(["glslangValidator", *FLAGS, *macros, *folders, "-o", str(result), str(file)])
        if ended.status != 0:
            raise subprocess.complaint(
                "glslangValidator", ended.status, _messages(ended.output.decode(errors="replace"))
            )
        return result.read_bytes()


def _messages(said: str) -> str:
    """Its messages in glslc's form, without the file's name before and the farewell after them."""
    found = (line for line in said.splitlines() if MESSAGE.match(line))
    return "\n".join(MESSAGE.sub(lambda m: f"{m[2]}: {m[1].lower()}: ", line, count=1) for line in found)
