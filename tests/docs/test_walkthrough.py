"""A new user follows docs/walkthrough.md: its files are written, its commands run, its outputs compared.

Each Python block is the file that is named last above it. Each line of a ``sh`` block is run where the line
before it was, ``cd`` included; a ``text`` block is what the commands above it print, ``...`` being anything.
A command that is to be stopped in the middle is killed after its first checkpoints. Where the page goes to
another machine, the commands get another device.
"""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.support.forked_process import COMMAND, LIBRARY, PYTORCH, ForkedProcess, run_forked

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "walkthrough.md"
PROGRAMS = {"python": sys.executable, "dl4all": COMMAND}
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```", re.M | re.S)
FILE = re.compile(r"`(\w+\.py)`")
STOPPED: dict[str, Callable[[Path], bool]] = {
    "python train.py": lambda folder: len(list(folder.glob("runs/shapes/step-*"))) >= 2,
    "python loop.py loop.pth": lambda folder: (folder / "loop.pth").exists(),
}
"""Commands that are to be stopped, and when: asked of the folder in which they run."""


@dataclass
class Reader:
    """Who follows the page: the folder that they are in, and the device that the machine there has."""

    folder: Path
    device: str
    other_device: str
    output: str = ""

    def follow(self, kind: str, text: str, above: str) -> None:
        """Do what a block says."""
        if kind == "python":
            (self.folder / FILE.findall(above)[-1]).write_text(text, "utf-8")
        elif kind == "sh":
            self.output = "".join(map(self.run, text.splitlines()))
        else:
            matches = doctest.OutputChecker().check_output(text, self.output, doctest.ELLIPSIS)
            assert matches, f"expected\n{text}\ngot\n{self.output}"

    def run(self, line: str) -> str:
        """What a command prints."""
        command, _, comment = line.partition("#")
        words = command.split()
        if words[0] == "cd":
            self.folder, self.device = (self.folder / words[1]).resolve(), self.other_device
            return ""
        if words[0] == "pip" or ("in_pytorch.py" in words and importlib.util.find_spec("torch") is None):
            return ""  # installing is another test's matter, and PyTorch need not be there
        options: dict[str, Any] = {
            "args": [PROGRAMS.get(words[0], words[0]), *words[1:]],
            "cwd": self.folder,
            "env": {**os.environ, "PYTHONPATH": str(ROOT), "DL4ALL_DEVICE": self.device},
            "preload": PYTORCH if "in_pytorch.py" in words else LIBRARY,
        }
        if "stop it in the middle" in comment:
            self.stop(command.strip(), options)
            return ""
        done = run_forked(**options)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def stop(self, command: str, options: dict[str, Any]) -> None:
        """Begin a command and kill it."""
        is_due = STOPPED[command]
        process = ForkedProcess(**options, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not is_due(self.folder) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"{command} ended by itself:\n{errors.decode()}"


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize(("here", "there"), [("cpu", "vulkan:0"), ("vulkan:0", "cpu")])
def test_a_new_user_gets_along(here: str, there: str, tmp_path: Path) -> None:
    need("vulkan:0")
    page = PAGE.read_text("utf-8")
    reader = Reader(tmp_path / "project", here, there)
    reader.folder.mkdir()
    for block in BLOCK.finditer(page):
        reader.follow(block["kind"], block["text"], page[: block.start()])
        for share in re.findall(r"(\d+)% of 60 unseen pictures after 1\d epochs", reader.output):
            assert int(share) > 90  # a third by chance
    assert reader.folder == tmp_path / "elsewhere"


def test_what_differs_from_the_page_is_seen(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "cpu", "cpu")
    reader.follow("python", "print('one', 2)\n", "`other.py` and `small.py`:")
    reader.follow("sh", "python small.py  # a remark\n", "")
    reader.follow("text", "one ...\n", "")
    with pytest.raises(AssertionError, match=r"expected\n +two\n"):
        reader.follow("text", "two\n", "")
    with pytest.raises(AssertionError, match="No such file"):
        reader.follow("sh", "python missing.py\n", "")
