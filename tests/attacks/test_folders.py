"""Attacks on the folder of a training run: others that write there, kills, disks and clocks."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dl4all as dl
from dl4all.errors import FolderInUseError
from tests.attacks.training_run import (
    BATCHES,
    EPOCHS,
    batches,
    compete,
    fill,
    go_on,
    hold,
    make,
    primitives,
    process,
    received,
    run,
)
from tests.conftest import need
from tests.support.subcases import FULL

PROCESSES = 8 if FULL else 4
LIMITS = [10, 100, 300, 1000, 2000, 3000] if FULL else [10, 300, 2000]
KILLS = {"cpu": 30 if FULL else 3, "vulkan:0": 20 if FULL else 2}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of the undisturbed run on the cpu."""
    return run(tmp_path_factory.mktemp("whole"))


def epochs_in(folder: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in (folder / "history.jsonl").read_text().splitlines()]


def check_folder(folder: Path) -> None:
    """Nothing is there but what a complete run leaves."""
    assert epochs_in(folder) == list(range(1, EPOCHS + 1))
    names = {path.name for path in folder.iterdir()}
    assert {"best", "history.jsonl", f"step-{EPOCHS * BATCHES:08d}"} <= names
    assert len(names) <= 4  # the best checkpoint may be another one
    for _, path in dl.io.checkpoints(folder):
        dl.io.load_checkpoint(path)


def test_several_processes_in_one_folder(tmp_path: Path, expected: str) -> None:
    """One of them trains; each other one is told which. None of them harms it."""
    together, refused = primitives().Barrier(PROCESSES), primitives().Semaphore(0)
    with contextlib.ExitStack() as stack:
        pipes = [
            stack.enter_context(process(compete, tmp_path, together, refused))[1] for _ in range(PROCESSES)
        ]
        found = [received(pipe) for pipe in pipes]
    (winner,) = [number for number, (name, _) in found if name == "complete"]
    for number, (name, text) in found:
        if number == winner:
            assert text == expected
        else:
            assert name == FolderInUseError.__name__
            assert f"{tmp_path} is written by another run: process {winner} on " in text
    check_folder(tmp_path)


def test_a_holder_that_is_killed_frees_the_folder(tmp_path: Path, expected: str) -> None:
    """Though a child of it lives on, which had to leave the folder alone; and the next run goes on."""
    with process(hold, tmp_path) as (holder, pipe):
        child, (name, text) = received(pipe)
        try:
            assert name == FolderInUseError.__name__
            assert f"process {holder.pid} on " in text
            with pytest.raises(FolderInUseError, match=f"process {holder.pid} on "):
                run(tmp_path)
            holder.kill()
            holder.join()
            os.kill(child, 0)  # it is there
            assert dl.io.load_checkpoint(tmp_path)["epoch"] == 1
            assert run(tmp_path) == expected
        finally:
            os.kill(child, signal.SIGKILL)
    check_folder(tmp_path)


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan:0", marks=pytest.mark.vulkan)])
def test_killed_at_any_moment(tmp_path: Path, device: str) -> None:
    """The run that goes on ends as the undisturbed one does, to the last bit, and no row is there twice."""
    need(device)
    with process(go_on, tmp_path / "whole", device) as (_, pipe):
        assert received(pipe) == "ready"
        begun = time.perf_counter()
        name, whole = received(pipe)
        seconds = time.perf_counter() - begun
    assert name == "complete", whole
    rng = random.Random(5)
    left = KILLS[device]
    for chain in range(left):
        folder = tmp_path / str(chain)
        for _ in range(rng.randint(1, 3)):
            if left:
                left -= 1
                with process(go_on, folder, device) as (killed, pipe):
                    assert received(pipe) == "ready"
                    time.sleep(rng.uniform(0, seconds))
                    killed.kill()
        with process(go_on, folder, device) as (_, pipe):
            assert received(pipe) == "ready"
            assert received(pipe) == ("complete", whole)
        check_folder(folder)
        if not left:
            break
    assert not left


def test_a_full_disk(tmp_path: Path, expected: str) -> None:
    """The error names the file, what was written before loads, and the run goes on when there is room."""
    with process(fill, tmp_path, LIMITS) as (_, pipe):
        for limit in LIMITS:
            found, (name, text), step = received(pipe)
            assert found == limit
            assert name == "OSError", text
            assert str(tmp_path) in text
            assert "too large" in text
            assert step % 2 == 0
        assert received(pipe)[1] == ("complete", expected)
    check_folder(tmp_path)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small file system in memory, where the system lets us."""
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_small_disk(tmp_path: Path, expected: str) -> None:
    """A file of somebody else takes what was free after the first epoch; the run goes on when it is gone."""
    with mounted(tmp_path, "size=256k"):
        folder = tmp_path / "run"
        taken = tmp_path / "taken"

        def take(trainer: dl.Trainer, row: object) -> None:
            with contextlib.suppress(OSError), taken.open("wb", buffering=0) as stream:
                while stream.write(bytes(1024)):
                    pass

        trainer = make(folder, callbacks=[take])
        with pytest.raises(OSError, match=str(folder)):
            trainer.fit(batches(), EPOCHS)
        assert dl.io.load_checkpoint(folder)["epoch"] == 1
        taken.unlink()
        assert run(folder) == expected
        check_folder(folder)


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """The error comes before the first step, and names the place."""
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        trainer = make(folder)
        with pytest.raises(OSError, match=str(tmp_path / "file")):
            trainer.fit([], EPOCHS, resume=True)
        assert trainer.step == 0
    locked = tmp_path / "run"
    (locked / ".lock").mkdir(parents=True)
    with pytest.raises(OSError, match=r"\.lock"):
        make(locked).fit([], EPOCHS, resume=True)
    assert [path.name for path in locked.iterdir()] == [".lock"]


def test_a_read_only_disk(tmp_path: Path) -> None:
    """Its checkpoints load; a run says at once that it cannot go on there."""
    with mounted(tmp_path, "size=1m"):
        dl.io.save_checkpoint(tmp_path / "run", 3, {"step": 3})
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        assert dl.io.load_checkpoint(tmp_path / "run")["step"] == 3
        with pytest.raises(OSError, match=r"Read-only file system: .*\.lock"):
            make(tmp_path / "run").fit([], EPOCHS, resume=True)


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: str) -> None:
    """The newest checkpoint is the one of the highest step, whatever time it is said to be of."""
    now = time.time()
    hours = iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: now - 3600 * next(hours))
    trainer = make(tmp_path, callbacks=[age])
    trainer.keep = 3
    trainer.fit(batches(), 2)
    assert len(dl.io.checkpoints(tmp_path)) >= 3
    assert dl.io.load_checkpoint(tmp_path)["step"] == 2 * BATCHES
    assert run(tmp_path) == expected
    assert epochs_in(tmp_path) == [1, 2, 3]


def age(trainer: dl.Trainer, row: object) -> None:
    """Date the checkpoints of a run: the older, the further in the future."""
    assert trainer.folder is not None
    for number, (_, path) in enumerate(reversed(dl.io.checkpoints(trainer.folder))):
        for file in (*path.iterdir(), path):
            os.utime(file, (time.time() + 10**6 * number,) * 2)
