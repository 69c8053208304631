"""``dl4all train``, run as a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli import cli
from tests.cli.conftest import Command
from tests.support.forked_process import COMMAND, run_forked

CONFIG = """
epochs = 4
device = "cpu"
folder = "out"
data = {name = "spiral", count = 60, batch_size = 16, shift = 0}
model = {name = "mlp", hidden = [8]}
optimizer = {name = "AdamW", lr = 0.02}
trainer = {checkpoint_every = 2}
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked(
        [COMMAND, "train", *arguments],
        cwd=folder,
        env={**os.environ, "DL4ALL_DEVICE": ""},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(CONFIG)
    return tmp_path


def test_a_run_and_its_results(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboard")
    done = run(
        folder, "run.toml", "--save", "w.safetensors", "--plot", "curves.png", "--tensorboard", "board"
    )
    assert done.returncode == 0, done.stderr
    *epochs, last = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in epochs] == [f"epoch {n}" for n in (1, 2, 3, 4)]
    assert re.fullmatch(
        r"loss \S+  accuracy \S+%  val_loss \S+  val_accuracy \S+%  after 4 epochs, \S+ s on cpu", last
    )
    rows = [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]
    assert f"{rows[-1]['val_accuracy']:.2%}" in last
    net = dl.models.MLP(2, [8], 3)
    net.load_state_dict(dl.io.load_weights(folder / "w.safetensors"))
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((folder / "board").iterdir())) == 1


def test_the_seed_of_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goes before the file's."""
    (folder / "seven.toml").write_text(f"seed = 7\n{CONFIG}")
    monkeypatch.chdir(folder)
    for name, arguments in {
        "file": ["seven.toml"],
        "command": ["run.toml", "--seed", "7"],
        "both": ["seven.toml", "--seed", "8"],
    }.items():
        options = ["--epochs", "1", "--folder", name, "--save", f"{name}.safetensors"]
        done = CliRunner().invoke(cli, ["train", *arguments, *options], catch_exceptions=False)
        assert done.exit_code == 0
    weights = {name: dl.io.load_weights(f"{name}.safetensors") for name in ("file", "command", "both")}
    for name, array in weights["file"].items():
        np.testing.assert_array_equal(weights["command"][name], array)
        assert name.endswith("bias") or not np.array_equal(weights["both"][name], array)


def test_going_on(folder: Path) -> None:
    """Two epochs and two more are the four of an undisturbed run, to the last bit."""
    whole = run(folder, "run.toml", "--folder", "whole", "--save", "whole.safetensors")
    first = run(folder, "run.toml", "--epochs", "2")
    again = run(folder, "run.toml")
    rest = run(folder, "run.toml", "--resume", "--save", "rest.safetensors")
    assert (whole.returncode, first.returncode, rest.returncode) == (0, 0, 0)
    assert again.returncode == 2
    assert "--resume goes on with it" in again.stderr
    weights = [dl.io.load_weights(folder / f"{name}.safetensors") for name in ("whole", "rest")]
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])
    assert rest.stdout.splitlines()[0].startswith("epoch 3 ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.toml"], ["none.toml", "No such file"]),
        (["run.toml", "--device", "cuda:0"], ["cuda:0"]),
        (["run.toml", "--epochs", "0"], ["--epochs"]),
        (["wrong.toml"], ["wrong.toml", "unknown key 'epoch'", "did you mean 'epochs'"]),
        (["bare.toml", "--resume"], ["--resume needs a folder"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: Command, arguments: list[str], words: list[str]
) -> None:
    (folder / "wrong.toml").write_text(CONFIG.replace("epochs", "epoch"))
    (folder / "bare.toml").write_text(CONFIG.replace('folder = "out"', ""))
    monkeypatch.chdir(folder)
    done = command("train", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert all(word in done.stderr for word in words)
    assert done.stdout == ""
