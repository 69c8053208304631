"""Checkpoints that are whole, and what happens to those that are not."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, FileFormatError
from dl4all.io import best_step, checkpoints, load_checkpoint, mark_best, save_checkpoint
from tests.conftest import REPOSITORY
from tests.support.forked_process import ForkedProcess


def state(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "text": "ü",
        "flags": [True, None, 1.5, float("inf")],
        "model": {"fc.weight": np.random.default_rng(step).standard_normal((3, 5)).astype(np.float32)},
        "optimizer": {"state": {0: {"step": 7, "exp_avg": np.arange(4.0)}, 11: {}}},
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return bool(alike and one.tobytes() == other.tobytes())
    return bool(one == other)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "run", 3, state(3))
    assert same(load_checkpoint(tmp_path / "run"), state(3))


@pytest.mark.parametrize(
    "array",
    [
        np.float32(1.5),
        np.zeros((0, 3), np.float16),
        np.array(7, np.int64),
        np.arange(12, dtype=np.uint8).reshape(3, 4).T,
        np.array([True, False]),
    ],
    ids=str,
)
def test_arrays_of_every_kind(array: Any, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 0, {"a": array})
    found = load_checkpoint(tmp_path)["a"]
    assert found.shape == np.shape(array)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_tensors_are_read_from_their_device(device: str, tmp_path: Path) -> None:
    x = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device=device).T.requires_grad_()
    save_checkpoint(tmp_path, 0, {"x": x})
    assert load_checkpoint(tmp_path)["x"].tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in range(6):
        save_checkpoint(tmp_path, step, state(step), keep=2)
        if step == 1:
            mark_best(tmp_path, step)
    assert [step for step, _ in checkpoints(tmp_path)] == [1, 4, 5]
    assert best_step(tmp_path) == 1
    assert load_checkpoint(tmp_path)["step"] == 5
    assert load_checkpoint(checkpoints(tmp_path)[0][1])["step"] == 1


def test_a_step_that_is_done_again_replaces_the_first(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 2, state(2))
    save_checkpoint(tmp_path, 2, state(8))
    assert load_checkpoint(tmp_path)["step"] == 8
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "empty"])
def test_a_damaged_one_is_named_and_the_one_before_it_taken(
    file: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    broken = save_checkpoint(tmp_path, 2, state(2)) / file
    content = broken.read_bytes()
    if damage == "missing":
        broken.unlink()
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        broken.write_bytes({"truncated": content[:-1], "flipped": flipped, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING, logger="dl4all"):
        assert load_checkpoint(tmp_path)["step"] == 1
    assert "step-00000002" in caplog.text
    with pytest.raises(FileFormatError, match="step-00000002"):
        load_checkpoint(tmp_path / "step-00000002")


@pytest.mark.parametrize("at", [0, 8, -1])
@pytest.mark.parametrize("file", ["state.safetensors", "state.json"])
def test_one_bit_is_seen_wherever_it_is(file: str, at: int, tmp_path: Path) -> None:
    """In a weight, too, where any number could stand."""
    broken = save_checkpoint(tmp_path, 1, state(1)) / file
    content = bytearray(broken.read_bytes())
    content[at] ^= 1
    broken.write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"{file}: truncated or damaged"):
        load_checkpoint(tmp_path)


def test_nothing_good(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "nowhere")
    (save_checkpoint(tmp_path, 1, state(1)) / "state.json").unlink()
    (save_checkpoint(tmp_path, 2, state(2)) / "state.json").unlink()
    with pytest.raises(FileFormatError, match=r"step-00000002.*step-00000001"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"raw", 1j])
def test_what_cannot_be_kept(value: Any, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    with pytest.raises(
        ArgumentError, match=r"^\[save_checkpoint\] state.\"x\".0 is \w+, which cannot be kept"
    ):
        save_checkpoint(tmp_path, 2, {"x": [value]})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_failed_write_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, state(1))

    def full_disk(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        save_checkpoint(tmp_path, 2, state(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.slow
def test_a_process_killed_while_writing(tmp_path: Path) -> None:
    """There is always a good checkpoint, and it is no older than the last that was announced."""
    code = (
        "import sys, numpy as np; from dl4all.io import save_checkpoint\n"
        "for step in range(1000000):\n"
        "    save_checkpoint(sys.argv[1], step, {'step': step, 'a': np.full(50000, step)}, keep=2)\n"
        "    print(step, flush=True)\n"
    )
    rng = np.random.default_rng(0)
    for number in range(8):
        run = tmp_path / str(number)
        command = [sys.executable, "-c", code, str(run)]
        with ForkedProcess(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as writer:
            assert writer.stdout is not None
            announced = int(writer.stdout.readline())
            time.sleep(float(rng.uniform(0, 0.3)))
            writer.send_signal(signal.SIGKILL)
            announced = max([announced, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        found = load_checkpoint(run)
        assert found["step"] >= announced
        assert (found["a"] == found["step"]).all()
        save_checkpoint(run, found["step"] + 1, {"step": 0})
        assert not list(run.glob(".unfinished*"))


def test_a_folder_appears_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made beside the others and renamed; who reads the old one of the same step goes on reading it."""
    renamed: list[Path] = []
    rename = Path.rename

    def noting(self: Path, target: Any) -> Path:
        renamed.append(Path(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", noting)
    root = tmp_path / "run"
    path = Path(dl.io.save_checkpoint(root, 3, {"losses": [0.5]}))
    assert renamed == [path]
    file = next(one for one in sorted(path.rglob("*")) if one.is_file())
    old = file.read_bytes()
    with file.open("rb") as reader:
        dl.io.save_checkpoint(root, 3, {"losses": [0.25]})
        assert reader.read() == old
    assert renamed[-1] == path
