"""The page of the op codes shows the table, a listing and a trace as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.forked_process import run_forked

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    script = ROOT / "tools" / "op_codes_page.py"
    here = {**os.environ, "PYTHONPATH": str(ROOT)}  # not what is installed, where that is another checkout
    done = run_forked([sys.executable, script, "--check"], env=here)
    assert done.returncode == 0, done.stderr
