"""One writer for a folder: a lock that a process which was killed does not keep."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dl4all.errors import FolderInUseError
from dl4all.runtime.records import file_lock

LOCK_FILE = ".lock"
"""Locked by the writer of the folder in which it is; its text says who that is."""

HOLDER_TRIES = 20  # to read who holds a lock, 10 ms apart

logger = logging.getLogger("dl4all")


class FolderLock:
    """The right of this process to write to a folder, from :func:`lock_folder`.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.exclusive = False  # no other process writes here; False where the file system has no locks
        self.users = 0
        self._stream: BinaryIO | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            FolderInUseError: another one holds it.
            OSError: the folder cannot be written.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        file = self.root / LOCK_FILE
        while self._stream is None:
            stream: BinaryIO = file.open("a+b", buffering=0)
            try:
                self.exclusive = self._locked(stream)
                # Else its last holder has just removed it.
                if _is_at(stream, file):
                    self._stream = stream
                    _describe(stream)
            finally:
                if self._stream is not stream:
                    stream.close()

    def _locked(self, stream: BinaryIO) -> bool:
        """Whether the file could be locked; False where the file system has no locks."""
        try:
            free = file_lock.try_lock(stream)
        except OSError as error:
            if error.errno not in file_lock.NO_LOCKS:
                raise
            logger.warning(
                "[lock_folder] %s is on a file system without locks (%s): see to it that no other run writes "
                "there",
                self.root,
                error.strerror,
            )
            return False
        if not free:
            raise _in_use(self.root, _holder(stream))
        return True

    def check(self) -> None:
        """Make sure that the lock is still there, as somebody may have emptied the folder.

        Raises:
            FolderInUseError: another one holds it by now.
        """
        if self._stream is not None and not _is_at(self._stream, self.root / LOCK_FILE):
            self._stream.close()
            self._stream = None
            self.acquire()

    def release(self) -> None:
        """Give the lock back, and remove its file."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with stream, contextlib.suppress(OSError):
                if self.exclusive and _is_at(stream, self.root / LOCK_FILE):
                    (self.root / LOCK_FILE).unlink()

    def forget(self) -> None:
        """Leave the lock to the process from which this one was forked."""
        if self._stream is not None:
            self._stream.close()  # a lock is held until the last process has closed its file
            self._stream = None


_held: dict[Path, FolderLock] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Keep all others from writing to a folder of checkpoints within a block.

    :class:`dl4all.Trainer` does so while it trains. Loading needs no lock. A process that ends gives the lock
    back, also one that is killed. On a file system without locks a warning says so, and nobody is kept off.

    Args:
        folder: is created if it is missing.

    Raises:
        FolderInUseError: another process, or another part of this one, writes there; the message names it.
        OSError: the folder cannot be written.

    Example:
        >>> import tempfile, dl4all as dl
        >>> folder = tempfile.mkdtemp()
        >>> with dl.io.lock_folder(folder):
        ...     _ = dl.io.save_checkpoint(folder, 1, {"epoch": 1})
    """
    with _held_for(Path(folder), shared=False):
        yield


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[bool]:
    """The same for one write, which is free to whoever in this process has locked the folder.

    Gives whether no other process can be writing there.
    """
    with _held_for(folder, shared=True) as lock:
        yield lock.exclusive


@contextlib.contextmanager
def _held_for(folder: Path, *, shared: bool) -> Iterator[FolderLock]:
    folder.mkdir(parents=True, exist_ok=True)
    key = folder.resolve()
    lock = None
    try:
        with _guard:
            held = _held.get(key)
            if held is not None and not shared:
                raise _in_use(folder, "this process")
            if held is None:
                held = FolderLock(key)
                held.acquire()
                _held[key] = held
            else:
                held.check()
            held.users += 1
            lock = held
        yield lock
    finally:
        if lock is not None:
            with _guard:
                lock.users -= 1
                if not lock.users:
                    if _held.get(key) is lock:
                        del _held[key]
                    lock.release()


def _in_use(root: Path, holder: str) -> FolderInUseError:
    return FolderInUseError(
        f"[lock_folder] {root} is written by another run: {holder}. Wait until it ends, or use another folder"
    )


def _describe(stream: BinaryIO) -> None:
    """Write who holds a lock, for the error of others; a full disk does not matter."""
    now = datetime.datetime.now(datetime.timezone.utc)
    text = f"process {os.getpid()} on {socket.gethostname()}, since {now:%Y-%m-%d %H:%M:%S} UTC"
    with contextlib.suppress(OSError):
        stream.truncate(0)
        stream.write(text.encode())


def _holder(stream: BinaryIO) -> str:
    """The contents of a lock's file; its holder writes them right after it has locked it."""
    for _ in range(HOLDER_TRIES):
        with contextlib.suppress(OSError):
            stream.seek(0)
            if text := stream.read(1000).decode(errors="replace"):
                return text
        time.sleep(0.01)
    return "a process that has not said which it is"


def _is_at(stream: BinaryIO, file: Path) -> bool:
    """Whether a path leads to an open file."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _after_fork() -> None:
    """A child holds nothing: else it would keep its parent's locks after that has ended."""
    global _guard
    _guard = threading.Lock()
    for lock in _held.values():
        lock.forget()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
