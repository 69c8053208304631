"""The recipes of docs/architecture.md, followed to the letter in a copy of the tree.

A step begins with one of these words, and its code block follows: "New file `PATH`:" writes it, "Append to
`PATH`:" goes to the end, "In `PATH`, below `LINE`:" goes below the first line that begins so. The line may be
in double ticks, and a remark in parentheses may follow it. The commands of "Run `COMMAND`" and "Check
`COMMAND`" are run from the root of the copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
RECIPES = re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE.partition("\n## Recipes\n")[2], re.M | re.S)
STEP = re.compile(
    r"^(?P<verb>New file|Append to|In) `(?P<path>[^`]+)`"
    r"(?:, below (?P<ticks>`+)(?P<anchor>.+?)(?P=ticks))?(?: \([^)]*\))?:(?:(?!```).)*\n"
    r"```\w*\n(?P<code>.*?)^```|^(?:Run|Check) `(?P<command>[^`]+)`",
    re.M | re.S,
)


def follow(step: re.Match[str], tree: Path) -> None:
    """Do what a step says."""
    verb, name, anchor, code, command = step.group("verb", "path", "anchor", "code", "command")
    if command:
        environment = {**os.environ, "PYTHONPATH": str(tree), "DL4ALL_TEST_DEVICES": ""}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            shell=True,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}{done.stderr[-4000:]}"
        return
    path = tree / name
    if verb == "New file":
        assert not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, "utf-8")
        return
    lines = path.read_text("utf-8").splitlines(keepends=True)
    at = len(lines)
    if verb == "In":
        at = next(i for i, line in enumerate(lines) if line.startswith(anchor)) + 1
    lines.insert(at, code if verb == "In" else f"\n\n{code}")
    path.write_text("".join(lines), "utf-8")


def copy_of_the_tree(target: Path) -> Path:
    """Without what is built or ignored, but with bytecode; the links inside dl4all/ stay links."""
    skipped = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, target, symlinks=True, ignore=skipped)
    return target


@pytest.mark.slow
@pytest.mark.parametrize(("title", "text"), RECIPES, ids=[title for title, _ in RECIPES])
def test_recipe(title: str, text: str, tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "dl4all")
    steps = list(STEP.finditer(text))
    assert steps
    assert text.count("```") == 2 * sum(step["code"] is not None for step in steps), "a block has no step"
    for step in steps:
        follow(step, tree)


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 6
