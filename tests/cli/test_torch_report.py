"""``dl4all torch-report``, run as a command."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.forked_process import COMMAND, PYTORCH, run_forked

pytest.importorskip("torch", reason="the command watches ops of PyTorch")

SCRIPT = """
import sys
import torch
import dl4all.torch

x = torch.randn(3, 5).to("dlall")
y = (x + x).relu()
torch.fft.fft(x)
print(sys.argv[1])
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "COLUMNS": "160", "DL4ALL_DEVICE": "cpu"}
    command = [str(COMMAND), "torch-report", *arguments]
    return run_forked(command, preload=PYTORCH, cwd=folder, env=environment)


def test_native_ops_and_those_on_the_cpu(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", "rows.json", "script.py", "mine")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mine\n"
    assert "why on the CPU" in done.stderr
    rows = {row["op"]: row for row in json.loads((tmp_path / "rows.json").read_text())}
    assert rows["aten::add.Tensor"]["native"] == 1
    assert rows["aten::add.Tensor"]["fallen_back"] == 0
    assert rows["aten::relu"]["seconds"] > 0
    fallen = [row for row in rows.values() if "fft" in row["op"]]
    assert fallen
    assert all(row["fallen_back"] == 1 and row["reason"] and not row["native"] for row in fallen)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", "no/such/rows.json", "script.py", "mine")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "cannot be written" in done.stderr
