"""GLSL to SPIR-V through the ``glslc`` program, where libshaderc is missing."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dl4all.runtime.spirv.compilers import subprocess
from dl4all.runtime.spirv.compilers.source import Source

VERSION = re.compile(r"^#version .*\n", re.MULTILINE)  # must come first
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


def compile_all(sources: Sequence[Source], include_dirs: Sequence[Path]) -> list[bytes | None]:
    """Compile texts by one process; None for those that do not compile.

    A run makes glslang's tables of functions first, which takes as long as 50 shaders. Options are those of
    all of its files, so that the macros are written into the texts.
    """
    with tempfile.TemporaryDirectory(prefix="dl4all-") as folder:
        files = [Path(folder) / f"{number}.comp" for number in range(len(sources))]
        for file, source in zip(files, sources, strict=True):
            file.write_text(_with_macros(source), "utf-8")
        folders = [f"-I{folder}" for folder in include_dirs]
        subprocess.run(["glslc", *FLAGS, *folders, "-c", *(file.name for file in files)], Path(folder))
        made = [file.with_name(f"{file.name}.spv") for file in files]
        return [file.read_bytes() if file.is_file() else None for file in made]


def _with_macros(source: Source) -> str:
    macros = "".join(f"#define {name} {value}\n" for name, value in source.defines)
    found = VERSION.search(source.text)
    end = found.end() if found else 0
    return source.text[:end] + macros + source.text[end:]
