"""The calls that a steady call of the library takes: bounds, so that none comes to the way unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.call_counts import WORK, calls_of
from tests.conftest import need

ROOT = Path(__file__).parents[2]
MOST = {
    "cpu": {
        "relu": 24,
        "matmul": 30,
        "conv2d": 54,
        "compiled step": 205,
        "dl.parallel forward of a Linear": 200,
    },
    "vulkan:0": {
        "relu": 50,
        "matmul": 75,
        "conv2d": 78,
        "compiled step": 300,
        "dl.parallel forward of a Linear": 245,
    },
}


def test_steady_calls_take_few_calls() -> None:
    """In a process without what tests watch, which takes calls, too."""
    need("vulkan:0")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DL4ALL_")}
    command = [sys.executable, "lab/call_counts.py", *MOST]
    shown = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, text=True, check=True).stdout
    counts = dict[str, dict[str, int]]({device: {} for device in MOST})
    for line, work in zip(shown.splitlines(), WORK, strict=True):
        assert line.startswith(work)
        for device, number in zip(MOST, line.split()[-1 : -2 * len(MOST) : -2][::-1], strict=True):
            counts[device][work] = int(number)
    wrong = {(d, w): n for d, of_device in counts.items() for w, n in of_device.items() if n > MOST[d][w]}
    assert not wrong, counts


def test_calls_are_counted_by_file_and_name() -> None:
    counts = calls_of(WORK["relu"]("cpu"))
    assert sum(number for name, number in counts.items() if name.endswith("op.py:__call__")) == 1
