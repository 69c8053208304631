"""The page of the op codes shows the table, a listing and a trace as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_is_up_to_date() -> None:
    script = ROOT / "tools" / "op_codes_page.py"
    here = {**os.environ, "PYTHONPATH": str(ROOT)}  # not what is installed, where that is another checkout
    done = subprocess.run(
        [sys.executable, script, "--check"], env=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
