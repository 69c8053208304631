"""The page that lists the ops is what the declarations say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_ops_is_up_to_date() -> None:
    script = ROOT / "tools" / "ops_page.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
