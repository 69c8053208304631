"""Indices out of range, which kernels find while nobody waits for them.

A kernel that reads indices takes one that is out of range for none, and notes it in a little memory that the
host sees: the number of the launch, the position and the index. Whoever waits for the device anyway looks
there, which is neither a transfer nor a wait, and raises the error that the launch was given.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dl4all import errors
from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError
from dl4all.runtime import fork
from dl4all.runtime.protocols import Backend, Span
from dl4all.scheduler import listeners

SLOTS = 64
"""Workgroups of a launch that looks for indices out of range: each has a slot of its own."""

SLOT_WORDS = 4  # the number of the launch, 0 while there is none; the position; the index, low word first
KEPT = 1024  # launches whose errors are kept after somebody has looked: others may be about to start
PACKAGE, STANDARD_LIBRARY = (f"{Path(str(module.__file__)).parent}{os.sep}" for module in (errors, os))
PYTORCH, PYTORCH_GRAPH = f"-packages{os.sep}torch{os.sep}", "<eval_with_key>"  # its files, and its made code

MakeError = Callable[[int], ArgumentError]
"""Makes the error of an op from the index that is out of range."""


class _Launch(NamedTuple):
    """The error of a launch that finds an index out of range."""

    error: MakeError
    line: str  # that called the op


class IndexErrors:
    """The findings of the kernels of one device.

    A launch takes its number before it is handed over, and is counted once more behind that: whoever counts
    before a wait then knows that nothing up to there can be missed. Looking takes no lock of the device.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = fork.rlock()
        self._numbers = itertools.count(1)
        self._launches: dict[int, _Launch] = {}
        self._seen = 0  # the count up to which a device was idle and nothing was found
        self._storage: Storage | None = None
        self.count = 0  # of what was launched, so far

    def owns(self, storage: Storage) -> bool:
        """Whether a storage is the memory in which kernels note errors."""
        return storage is self._storage

    def begin(self, error: MakeError | None) -> tuple[int, Storage]:
        """The number of a launch that reads indices, and the memory that it binds for what it finds.

        Without an error the number is 0: the launch notes nothing.

        Raises:
            OutOfMemoryError
        """
        with self._lock:
            if self._storage is None:
                buffer = self._backend.allocate(4 * SLOT_WORDS * SLOTS, "host")
                assert buffer.mapped is not None
                buffer.mapped[:] = 0
                self._storage = Storage(Span(buffer, 0, buffer.nbytes), buffer.nbytes)
            storage = self._storage
        if error is None:
            return 0, storage
        listeners.unplanned()  # each launch has a number of its own
        number = next(self._numbers)
        self._launches[number] = _Launch(error, calling_line())
        self.count = number
        if len(self._launches) > 2 * KEPT:
            self._forget()
        number %= 2**32
        for listener in listeners.here():
            number = listener.index_check(number)
        return number, storage

    def keep(self, number: int) -> Callable[[], None]:
        """Calls of a replay of a launch with this number, before and after it is handed over."""
        launch = self._launches[number]

        def again() -> None:
            self._launches[number] = launch
            self.launched()

        return again

    def launched(self) -> None:
        """A launch that took a number was handed over."""
        self.count = next(self._numbers)

    def has_unseen(self) -> bool:
        """Whether something was launched that nobody has waited for."""
        return self._storage is not None and self.count > self._seen

    def look(self, count: int, *, idle: bool = False) -> None:
        """Raise what a kernel has found. Never waits; what was waited for has been found.

        Args:
            count: :attr:`count` before the wait.
            idle: the wait was for everything: what was counted needs no other look.

        Raises:
            ArgumentError: an index was out of range. The next look begins anew.
        """
        if count <= self._seen or self._storage is None:
            return
        mapped = self._storage.buffer.mapped
        if mapped is None or not mapped.size:  # the device was closed
            return
        words = mapped[: 4 * SLOT_WORDS * SLOTS].view(np.uint32)
        if words[::SLOT_WORDS].any():
            with self._lock:
                found = words.reshape(SLOTS, SLOT_WORDS).copy()
                if found[:, 0].any():
                    words.reshape(SLOTS, SLOT_WORDS)[:, 1:] = 0
                    words[::SLOT_WORDS] = 0  # last: a kernel writes only where there is no number
                    raise self._error(found)
        if idle:
            self._seen = max(self._seen, count)

    def _error(self, found: npt.NDArray[np.uint32]) -> ArgumentError:
        """The error of the first launch that found something, and of the first index that it found."""
        slots = found[found[:, 0] != 0]
        launch = int(slots[:, 0].min())
        slot = min(slots[slots[:, 0] == launch], key=lambda words: int(words[1]))
        index = int(slot[2:].view(np.int64)[0])
        noted = self._launches.get(launch)
        error = (
            ArgumentError(f"[index] index {index} is out of range") if noted is None else noted.error(index)
        )
        error.args = (f"{error}{noted.line if noted else ''}",)
        error.deferred = True
        return error

    def _forget(self) -> None:
        """Forget old launches that were looked for, or more of them than can have gone on."""
        for number in list(self._launches)[:-KEPT]:
            if number <= self._seen or len(self._launches) > 64 * KEPT:
                self._launches.pop(number, None)


def calling_line() -> str:
    """The line that called the library, for the end of a message; empty where no other code runs.

    PyTorch, which may be between the library and its caller, counts as the library.

    >>> calling_line().endswith(">:1)")
    True
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if (
            not file.startswith((PACKAGE, PYTORCH_GRAPH))
            and PYTORCH not in file
            and (not file.startswith(STANDARD_LIBRARY) or "site-packages" in file or "dist-packages" in file)
        ):
            return f" (called at {file}:{frame.f_lineno})"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
