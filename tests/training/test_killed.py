"""Training processes that are killed at any moment and started again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dl4all as dl
from tests.support.forked_process import ForkedProcess
from tests.support.subcases import FULL

SCRIPT = Path(__file__).with_name("kill_me.py")
KILLS = 20 if FULL else 8
CHAINS = 4 if FULL else 2  # runs, each killed several times


def start(folder: Path) -> subprocess.Popen[str]:
    """A process that is about to train."""
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "OMP_NUM_THREADS": "1"}
    process = ForkedProcess(
        [sys.executable, SCRIPT, folder], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def result(folder: Path) -> tuple[bytes, str]:
    return (folder / "weights.bin").read_bytes(), (folder / "history.jsonl").read_text()


@pytest.mark.slow
def test_killed_runs_end_as_the_undisturbed_one(tmp_path: Path) -> None:
    """To the last bit, weights and history, wherever SIGKILL struck: in a step or in writing a checkpoint."""
    with start(tmp_path / "whole") as process:
        begun = time.perf_counter()
        assert process.wait() == 0
        seconds = time.perf_counter() - begun
    expected = result(tmp_path / "whole")
    rng = random.Random(11)
    struck = []
    for chain in range(CHAINS):
        folder = tmp_path / str(chain)
        for _ in range(KILLS // CHAINS):
            with start(folder) as process:
                time.sleep(rng.uniform(0, 0.6 * seconds))
                process.kill()
                process.wait()
            found = dl.io.checkpoints(folder)
            struck.append(found[-1][0] if found else 0)
        with start(folder) as process:
            assert process.wait() == 0
        assert result(folder) == expected, f"killed after steps {struck}"
    assert len(set(struck)) > KILLS // 4, f"the kills came at few different moments: {struck}"
