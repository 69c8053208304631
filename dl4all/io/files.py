"""Files that are on the disk when they are said to be, and errors that name them."""

from __future__ import annotations

import contextlib
import os
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
