"""Files that are on the disk when they are said to be, and errors that name them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def naming(file: Path) -> Iterator[None]:
    """Let an OSError name the file: the system does so where one is opened, not where a disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


def write_text(file: Path, text: str) -> None:
    """Write a text file and sync it to the disk."""
    with naming(file), file.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk, if the system lets folders be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A draft beside a file, which takes its place after the block: a crash leaves the old file or the new.

    Raises:
        OSError: the file cannot be written.
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder of this file does not exist", str(target))
    # In the target's folder, because a rename is atomic only within one file system.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        draft.touch()
        mode = draft.stat().st_mode
        yield draft
        draft.chmod(mode)  # safetensors lets only the owner read the file
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # the file is complete
        sync_folder(target.parent)
