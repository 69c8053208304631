"""The examples of PyTorch networks on dlall, a few steps of each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.forked_process import PYTORCH, run_forked

pytest.importorskip("torch", reason="the networks are PyTorch's")
pytest.importorskip("sklearn", reason="the digits come with scikit-learn")

ROOT = Path(__file__).parents[2]


def run(name: str, folder: Path, *arguments: str) -> str:
    done = run_forked(
        [sys.executable, "-W", "error", ROOT / "examples" / f"{name}.py", *arguments],
        cwd=folder,
        preload=PYTORCH,
        env={**os.environ, "DL4ALL_DEVICE": "cpu", "DL4ALL_TORCH_FALLBACK": "error", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_resnet_learns_is_saved_and_reads(tmp_path: Path) -> None:
    printed = {
        device: run("torch_resnet", tmp_path, f"--device={device}", "--epochs=1", "--samples=64")
        for device in ("cpu", "dlall")
    }
    loss, other = (text.split("loss ")[1].split()[0] for text in printed.values())
    assert float(loss) == pytest.approx(float(other), abs=0.002)
    assert "of 359 digits on dlall (" in printed["dlall"]
    assert (tmp_path / "torch_resnet.pth").stat().st_size > 2_000_000


def test_gpt_learns_and_writes(tmp_path: Path) -> None:
    (tmp_path / "cat.txt").write_text("The cat sat on the mat. " * 60)
    printed = run("torch_gpt", tmp_path, "--steps=3", "--text=cat.txt")
    assert printed.startswith("The ")
    bits = float(printed.split(" bits per byte")[0].split()[-1])
    assert 4 < bits < 9
