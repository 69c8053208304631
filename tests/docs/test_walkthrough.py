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

NOT_RUN = "not run\n"
"""The output of a command that is left out, with which nothing is compared."""


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
        elif self.output != NOT_RUN:
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
            return NOT_RUN  # installing is another test's matter, and PyTorch need not be there
        if "stop it in the middle" in comment:
            self.stop(command.strip())
            return ""
        done = self.done(command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def options(self, command: str) -> dict[str, Any]:
        """The arguments of a process that a command starts."""
        words = command.split()
        return {
            "args": [PROGRAMS.get(words[0], words[0]), *words[1:]],
            "cwd": self.folder,
            "env": {**os.environ, "PYTHONPATH": str(ROOT), "DL4ALL_DEVICE": self.device},
            "preload": PYTORCH if "in_pytorch.py" in words else LIBRARY,
        }

    def done(self, command: str) -> subprocess.CompletedProcess[str]:
        return run_forked(**self.options(command))

    def begun(self, command: str) -> Any:
        return ForkedProcess(**self.options(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def stop(self, command: str) -> None:
        """Begin a command and kill it."""
        is_due = STOPPED[command]
        process = self.begun(command)
        while not is_due(self.folder) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"{command} ended by itself:\n{errors.decode()}"


@dataclass
class Typist(Reader):
    """Who types lines into a shell, in an environment that has nothing of this one."""

    activate: str = ""

    def options(self, command: str) -> dict[str, Any]:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
        return {
            "args": ["bash", "-c", f"source {self.activate} && exec {command}"],
            "cwd": self.folder,
            "env": {**kept, "DL4ALL_DEVICE": self.device},
        }

    def done(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(**self.options(command), capture_output=True, text=True, check=False)

    def begun(self, command: str) -> Any:
        return subprocess.Popen(**self.options(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.mark.full
@pytest.mark.slow
def test_readme_and_the_page_are_typed_in_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines as they stand, from ``python3 -m venv`` on, but PyTorch's, which is not installed."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    typist = Typist(clone, "cpu", "cpu", activate=f"{clone}/.venv/bin/activate")
    readme = (clone / "README.md").read_text("utf-8")
    blocks = [(block["kind"], block["text"]) for block in BLOCK.finditer(readme)]
    assert [kind for kind, _ in blocks] == ["bash", "python"]
    for kind, text in blocks:
        if kind == "bash":
            ran = subprocess.run(
                ["bash", "-ec", text], cwd=clone, env=typist.options("")["env"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        else:
            (clone / "first.py").write_text(text)
            ran = typist.done("python first.py")
        assert ran.returncode == 0, ran.stderr[-3000:]
    assert re.search(r"9\d\.\d% of 359 unseen digits", ran.stdout)
    page = (clone / "docs" / "walkthrough.md").read_text("utf-8")
    assert typist.done("pip install '.[vision]'").returncode == 0
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # PyTorch is not there
    typist.folder = tmp_path / "project"
    typist.folder.mkdir()
    for block in BLOCK.finditer(page):
        typist.follow(block["kind"], block["text"], page[: block.start()])
    assert typist.folder == tmp_path / "elsewhere"


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
