"""Files that can be made again: written whole or not at all, and noticed when they are damaged.

A file is the sha256 of its content followed by the content.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import stat
from pathlib import Path

import platformdirs

DIGEST_BYTES = 32

log = logging.getLogger("dl4all")


def folder() -> Path:
    """The folder of this user's files: DL4ALL_CACHE_DIR, or the system's cache folder.

    A relative folder is one of the present working directory, also for those who write to it from another
    one later. If that directory was deleted, the system's cache folder takes its place.
    """
    if chosen := os.environ.get("DL4ALL_CACHE_DIR"):
        with contextlib.suppress(FileNotFoundError):
            return Path(chosen).absolute()
    return platformdirs.user_cache_path("dl4all", appauthor=False)


def read(file: Path) -> bytes | None:
    """The contents of a file; None where there is none, or where it is damaged."""
    try:
        with open(file, "rb", opener=open_at_once) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError("not a regular file")
            content = stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        log.debug("cannot read cache file %s: %s", file, error)
        return None
    digest, content = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        log.debug("cache file %s is damaged; it is built anew", file)
        return None
    return content


def open_at_once(path: str, flags: int) -> int:
    """For ``open(opener=)``: a pipe in place of a file is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def write(file: Path, content: bytes) -> None:
    """Put `content` into a file. Who reads it meanwhile sees the old file or the new one, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile, whose files only their owner can read: a wheel's are everybody's.
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with part.open("xb") as stream:
            stream.write(hashlib.sha256(content).digest() + content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def try_write(file: Path, content: bytes) -> None:
    """Write if the folder lets us: a read-only home costs time at the next start, and nothing else."""
    try:
        write(file, content)
    except OSError as error:
        log.debug("cannot write cache file %s: %s", file, error)
