"""Which GLSL compiler is used: libshaderc in this process, else ``glslc``, else ``glslangValidator``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dl4all.errors import BackendMissingError, ConfigError
from dl4all.runtime.spirv.compilers import glslang, glslc, shaderc
from dl4all.runtime.spirv.compilers.source import Source

Compile = Callable[[Path, Sequence[tuple[str, str]], Sequence[Path]], bytes]
CompileAll = Callable[[Sequence[Source], Sequence[Path]], list[bytes | None]]


class Compiler(NamedTuple):
    """A GLSL compiler that is installed, and which build of it."""

    identity: str
    compile: Compile
    compile_all: CompileAll | None = None
    """Compiles many in less time than one by one, where that is so."""


# In order of preference: a process for each shader costs more than a call.
FOUND_BY: dict[str, tuple[Callable[[], str | None], Compile]] = {
    "shaderc": (shaderc.identity, shaderc.compile),
    "glslc": (glslc.identity, glslc.compile),
    "glslangValidator": (glslang.identity, glslang.compile),
}

# Debian 12's libshaderc.so.1 takes glslang's symbols from the glslc program and does not load without it.
HOW_TO_INSTALL = (
    "install glslc, libshaderc or glslangValidator (Debian, Ubuntu: apt install glslc, or glslang-tools "
    "where there is no glslc; "
    "Fedora: dnf install glslc or libshaderc; Arch: pacman -S shaderc; macOS: brew install shaderc)"
)


def pick() -> Compiler:
    """The compiler to use; DL4ALL_SHADER_COMPILER allows only the one it names."""
    forced = os.environ.get("DL4ALL_SHADER_COMPILER", "")
    if forced and forced not in FOUND_BY:
        raise ConfigError(f"DL4ALL_SHADER_COMPILER is {forced!r}; it can be {', '.join(FOUND_BY)}")
    for name in [forced] if forced else FOUND_BY:
        find, compile = FOUND_BY[name]
        identity = find()
        if identity is not None:
            return Compiler(identity, compile, glslc.compile_all if compile is glslc.compile else None)
    wanted = f"DL4ALL_SHADER_COMPILER={forced}" if forced else "a GLSL compiler"
    reasons = "".join(f" ({error})" for error in shaderc.load_errors()) if forced != "glslc" else ""
    raise BackendMissingError(
        f"{wanted} is needed to build this shader and cannot be used{reasons}; {HOW_TO_INSTALL}"
    )
