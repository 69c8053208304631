"""SPIR-V modules on disk: those that came with the wheel, and those that this user has built.

A key stands for everything that decides what a module does: the source, its includes, the defines and the
target. It does not name a compiler, so the wheel's modules serve any machine, and a shader that was edited
never meets a stale one. The user's own files name the compiler as well, so that a better one takes over.

``tail -c +33 FILE | spirv-dis`` shows one (:mod:`dl4all.runtime.records.file_cache`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from dl4all.runtime.records.file_cache import folder

# The options in shaderc.py and glslc.py. Change it with them.
TARGET = "vulkan1.1 spirv1.3 unoptimised main"


def key(source: str, includes: Mapping[str, str], defines: Iterable[tuple[str, str]]) -> str:
    """The name of a module: a digest of all that it is made from."""
    parts = [TARGET, source, sorted(includes.items()), sorted(defines)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def bundled_file(root: Path, key: str) -> Path:
    """The file that the wheel holds for a key, if it was built for it."""
    return root / "spirv" / f"{key}.spv"


def user_file(key: str, compiler: str) -> Path:
    """The file of a key as one compiler builds it."""
    return folder() / "spirv" / f"{key}-{hashlib.sha256(compiler.encode()).hexdigest()[:16]}.spv"


def user_files(key: str) -> list[Path]:
    """The files of a key, whichever compiler has built them."""
    return sorted((folder() / "spirv").glob(f"{key}-*.spv"))
