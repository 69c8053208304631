"""One writer for each folder of checkpoints."""

from __future__ import annotations

import contextlib
import errno
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.errors import FolderInUseError
from dl4all.io import checkpoint, checkpoints, load_checkpoint, lock_folder, mark_best, save_checkpoint
from dl4all.io.folder_lock import LOCK_FILE
from dl4all.runtime.records import file_lock
from tests.support.forked_process import ForkedProcess

HOLDER = """
import fcntl, sys
stream = open(sys.argv[1], "a")
fcntl.flock(stream, fcntl.LOCK_EX)
stream.write("process 7 on elsewhere, since yesterday")
stream.flush()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One that holds the lock of a folder."""
    with ForkedProcess(
        [sys.executable, "-c", HOLDER, folder / LOCK_FILE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def save(folder: Path, step: int, keep: int = 3) -> Path:
    return save_checkpoint(folder, step, {"weights": np.arange(step, step + 3.0)}, keep)


def test_the_second_writer_is_told_who_is_the_first(tmp_path: Path) -> None:
    """Readers need no lock; and one who is killed frees it."""
    save(tmp_path, 1)
    with another_process(tmp_path) as holder:
        for write in (lambda: save(tmp_path, 2), lambda: mark_best(tmp_path, 1)):
            with pytest.raises(
                FolderInUseError, match=r"process 7 on elsewhere, since yesterday\. Wait"
            ) as caught:
                write()
            assert str(tmp_path) in str(caught.value)
        with pytest.raises(FolderInUseError), lock_folder(tmp_path):
            pass
        assert load_checkpoint(tmp_path)["weights"].tolist() == [1.0, 2.0, 3.0]
        assert (tmp_path / LOCK_FILE).read_text() == "process 7 on elsewhere, since yesterday"
        holder.kill()
        holder.wait()
        save(tmp_path, 2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000001", "step-00000002"]


def test_within_one_process(tmp_path: Path) -> None:
    """Whoever has the lock writes; another one that wants it is refused; a link leads to the same folder."""
    folder = tmp_path / "runs"
    link = tmp_path / "link"
    with lock_folder(folder):
        link.symlink_to(folder, target_is_directory=True)
        save(folder, 1)
        mark_best(link, 1)
        for path in (folder, link):
            with (
                pytest.raises(FolderInUseError, match="written by another run: this process"),
                lock_folder(path),
            ):
                pass
        save(folder, 2)
    with lock_folder(link):
        save(folder, 3)
    assert [step for step, _ in checkpoints(folder)] == [1, 2, 3]
    assert not (folder / LOCK_FILE).exists()


def test_a_lock_whose_file_was_taken_away_is_taken_again(tmp_path: Path) -> None:
    """And if somebody else has taken it meanwhile, that one has it."""
    with lock_folder(tmp_path):
        (tmp_path / LOCK_FILE).unlink()
        save(tmp_path, 1)
        assert (tmp_path / LOCK_FILE).exists()
        (tmp_path / LOCK_FILE).unlink()
        with another_process(tmp_path), pytest.raises(FolderInUseError, match="process 7"):
            save(tmp_path, 2)
    assert [step for step, _ in checkpoints(tmp_path)] == [1]


def test_a_file_that_its_last_holder_removes_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening it and locking it: whoever comes next would lock another file."""
    seen: list[bool] = []
    try_lock = file_lock.try_lock

    def late(stream: Any) -> bool:
        seen.append((tmp_path / LOCK_FILE).exists())
        if len(seen) == 1:
            (tmp_path / LOCK_FILE).unlink()
        return try_lock(stream)

    monkeypatch.setattr(file_lock, "try_lock", late)
    with lock_folder(tmp_path):
        assert seen == [True, True]
        with (tmp_path / LOCK_FILE).open("ab") as stream:
            assert not try_lock(stream)


def test_what_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a process that is gone is removed, that of this one never."""
    old, mine = (tmp_path / f"{checkpoint.UNFINISHED_PREFIX}{name}" for name in ("old", "mine"))
    for path in (old, mine):
        path.mkdir()
    monkeypatch.setattr(checkpoint, "_unfinished", {mine})
    save(tmp_path, 1)
    assert not old.exists()
    assert mine.exists()


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says so, and nobody's unfinished checkpoint is removed: its writer may be alive."""

    def refuse(stream: Any) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_lock, "try_lock", refuse)
    other = tmp_path / f"{checkpoint.UNFINISHED_PREFIX}other"
    other.mkdir()
    with caplog.at_level(logging.WARNING, logger="dl4all"), lock_folder(tmp_path):
        save(tmp_path, 1)
        save(tmp_path, 2, keep=1)
    assert caplog.text.count("is on a file system without locks (No locks available)") == 1
    assert other.exists()
    assert [step for step, _ in checkpoints(tmp_path)] == [2]

    def broken(stream: Any) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_lock, "try_lock", broken)
    with pytest.raises(OSError, match="Input/output"), lock_folder(tmp_path):
        pass


def test_loading_while_another_run_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keep=1 what was the newest when the reader looked is gone when it reads."""
    save(tmp_path, 1)
    load = checkpoint._load
    met: list[str] = []

    def late(path: Path) -> dict[str, Any]:
        met.append(path.name)
        if len(met) < 4:
            save(tmp_path, 1 + len(met), keep=1)
        return load(path)

    monkeypatch.setattr(checkpoint, "_load", late)
    assert load_checkpoint(tmp_path)["weights"][0] == 4
    assert len(met) == 4


def test_a_failed_replacement_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 5)
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if target.name == "step-00000005" and not moved:
            moved.append(self)
            raise KeyboardInterrupt
        return rename(self, target)

    moved: list[Path] = []
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 5, {"weights": np.zeros(3)})
    assert load_checkpoint(tmp_path)["weights"].tolist() == [5.0, 6.0, 7.0]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
