"""Locks on files."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest

from dl4all.runtime.records.file_lock import NO_LOCKS, try_lock


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
