"""The lists of names, the methods and the stubs are what the declarations say; the API is what it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_lists_and_stubs_are_written_from_the_declarations() -> None:
    tool = ROOT / "tools" / "exports.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
