"""The pages that list the ops, and ONNX's operators, are what the declarations say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.forked_process import run_forked
from tests.support.subcases import each

ROOT = Path(__file__).parents[2]


@each("name", ["ops_page.py", "onnx_ops_page.py"])
def test_the_pages_are_up_to_date(name: str) -> None:
    script = ROOT / "tools" / name
    here = {**os.environ, "PYTHONPATH": str(ROOT)}  # not what is installed, where that is another checkout
    done = run_forked([sys.executable, script, "--check"], env=here)
    assert done.returncode == 0, done.stderr
