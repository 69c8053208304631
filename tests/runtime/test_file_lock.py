"""Locks on files."""

from __future__ import annotations

import errno
import fcntl
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dl4all.runtime.records import file_lock
from dl4all.runtime.records.file_lock import NO_LOCKS, lock, try_lock


def test_the_second_does_not_get_it(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file.open("ab") as first, file.open("ab") as second:
        assert try_lock(first)
        assert not try_lock(second)
        first.close()
        assert try_lock(second)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_what_is_no_lock_of_another_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, "not here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "lock").open("ab") as stream, pytest.raises(OSError, match="not here") as caught:
        try_lock(stream)
    assert (caught.value.errno in NO_LOCKS) == (number == errno.ENOLCK)


def locking(descriptor: int, mode: int, count: int) -> None:
    """``msvcrt.locking``, which tries once, by the lock of this system."""
    fcntl.flock(descriptor, fcntl.LOCK_UN if mode == 0 else fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("system", ["linux", "win32"])
def test_the_second_waits_until_the_first_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    functions = SimpleNamespace(LK_NBLCK=2, LK_UNLCK=0, locking=locking)
    monkeypatch.setattr(file_lock, "msvcrt", functions, raising=False)
    monkeypatch.setattr(file_lock, "sys", SimpleNamespace(platform=system))
    file = tmp_path / "lock"
    with file.open("ab") as first, file.open("ab") as second:
        lock(first)
        waiting = threading.Thread(target=lock, args=(second,))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        first.close()
        waiting.join(30)
        assert not waiting.is_alive()
        with file.open("ab") as third:
            assert not try_lock(third)
