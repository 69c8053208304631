"""The Python blocks of the pages run, those of a page one after the other as one script."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "architecture.md": "tests/test_recipes.py puts its blocks into files",
    "distributed.md": "tests/distributed/test_scripts.py runs its blocks in two processes",
    "language-models.md": "tests/llm/test_loading.py runs them with a tiny model",
    "processes.md": "tests/attacks/test_fork.py runs its blocks as scripts",
    "walkthrough.md": "tests/docs/test_walkthrough.py writes its blocks into files and runs its commands",
}
"""Pages whose blocks are run by other tests."""

PAGES = [
    pytest.param(page, marks=[pytest.mark.vulkan] if '"vulkan:0"' in text else [], id=page.name)
    for page in sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "course").glob("*.md")])
    if page.name not in ELSEWHERE and "\n```python\n" in (text := page.read_text("utf-8"))
]


def blocks(text: str) -> list[tuple[int, str]]:
    """The line and the text of each Python block."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


def run(page: Path, line: int, block: str, names: dict[str, Any]) -> None:
    """Sessions are compared with their output; plain code must run. Tracebacks show the page's lines."""
    if ">>>" in block:
        output: list[str] = []
        test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), line)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        assert runner.run(test, out=output.append, clear_globs=False).failed == 0, "".join(output)
    else:
        exec(compile("\n" * line + block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for line, block in blocks(page.read_text("utf-8")):
        run(page, line, block, names)


def test_a_wrong_block_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    names: dict[str, Any] = {}
    (first, second) = blocks(page.read_text())
    run(page, *first, names)
    with pytest.raises(AssertionError):
        run(page, *second, names)
