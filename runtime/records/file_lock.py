"""Locks on files, which go with the process that holds them, however that ends."""

from __future__ import annotations

import contextlib
import errno
import sys
import time
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

BUSY = frozenset((errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK))
"""Errors of the system about a file that is locked already; Windows and NFS have their own."""

NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS))
"""Errors of a file system that has no locks."""

BYTE = 1 << 30
"""The byte that Windows locks: far behind what is in the file, which others can read."""

WAIT = 0.001
"""Seconds between two looks at a lock of Windows."""


def try_lock(stream: BinaryIO) -> bool:
    """Lock an open file for this process alone, until the stream is closed; returns whether nobody had it.

    Each opening of a file counts by itself: a process that opens it twice locks itself out.

    Raises:
        OSError: it cannot be found out; with one of :data:`NO_LOCKS`, because the file system has no locks.
    """
    try:
        if sys.platform == "win32":
            stream.seek(BYTE)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in BUSY:
            raise
        return False
    return True


def lock(stream: BinaryIO) -> None:
    """Lock an open file for this process alone as soon as nobody else has it, until the stream is closed.

    Raises:
        OSError: as :func:`try_lock`'s.
    """
    if sys.platform != "win32":
        fcntl.flock(stream, fcntl.LOCK_EX)
        return
    while not try_lock(stream):  # Windows gives up after ten seconds
        time.sleep(WAIT)


def unlock(stream: BinaryIO) -> None:
    """Let others lock it. Closing is not enough: a child that was forked meanwhile holds the file, too."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            stream.seek(BYTE)
            msvcrt.locking(stream.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(stream, fcntl.LOCK_UN)
