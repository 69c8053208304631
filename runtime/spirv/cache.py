"""SPIR-V modules on disk: those that came with the wheel, and those that this user has built.

A key stands for everything that decides what a module does: the source, its includes, the defines and the
target. It does not name a compiler, so the wheel's modules serve any machine, and a shader that was edited
never meets a stale one. The user's own files name the compiler as well, so that a better one takes over.

A file is the sha256 of the module followed by the module: ``tail -c +33 FILE | spirv-dis`` shows it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import platformdirs

# The options in shaderc.py and glslc.py. Change it with them.
TARGET = "vulkan1.1 spirv1.3 unoptimised main"
DIGEST_BYTES = 32

log = logging.getLogger("dl4all")


def key(source: str, includes: Mapping[str, str], defines: Iterable[tuple[str, str]]) -> str:
    """The name of a module: a digest of all that it is made from."""
    parts = [TARGET, source, sorted(includes.items()), sorted(defines)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def user_folder() -> Path:
    """Where this user's modules are: DL4ALL_CACHE_DIR/spirv, or below the system's cache folder."""
    chosen = os.environ.get("DL4ALL_CACHE_DIR")
    base = Path(chosen) if chosen else platformdirs.user_cache_path("dl4all", appauthor=False)
    return base / "spirv"


def bundled_file(root: Path, key: str) -> Path:
    """The file that the wheel holds for a key, if it was built for it."""
    return root / "spirv" / f"{key}.spv"


def user_file(key: str, compiler: str) -> Path:
    """The file of a key as one compiler builds it."""
    return user_folder() / f"{key}-{hashlib.sha256(compiler.encode()).hexdigest()[:16]}.spv"


def read(file: Path) -> bytes | None:
    """The module in a file; None where there is none, or where it is damaged."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.debug("cannot read cached SPIR-V %s: %s", file, error)
        return None
    digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(code).digest() != digest:
        log.debug("cached SPIR-V %s is damaged; it is built anew", file)
        return None
    return code


def write(file: Path, code: bytes) -> None:
    """Put a module into a file. Whoever reads it meanwhile sees the old file or the new one, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile, whose files only their owner can read: the wheel's modules are everybody's.
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with part.open("xb") as stream:
            stream.write(hashlib.sha256(code).digest() + code)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def try_write(file: Path, code: bytes) -> None:
    """Write if the folder lets us: a read-only home costs time at the next start, and nothing else."""
    try:
        write(file, code)
    except OSError as error:
        log.debug("cannot write cached SPIR-V %s: %s", file, error)
