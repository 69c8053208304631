"""The messages that the page about troubleshooting quotes are those that dl4all raises."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.support.parts import PARTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
QUOTED = re.findall(r"^### `(.*)`$", PAGE.read_text("utf-8"), re.M)
FOLDERS = tuple(ROOT / part for part in ("dl4all", *PARTS))


def text_of(node: ast.AST) -> str:
    """A string of the source, with … where a value is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    return "…"


@functools.cache
def texts() -> list[str]:
    found = []
    for path in {path.resolve() for folder in FOLDERS for path in folder.rglob("*.py")}:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                found.append(text_of(node))
    return found


def is_raised(message: str) -> bool:
    words = [re.escape(part.strip()) for part in re.sub(r"^\[.*?\] ", "", message).split("…") if part.strip()]
    pattern = re.compile(".*".join(words), re.S)
    return any(pattern.search(text) for text in texts())


@pytest.mark.parametrize("message", QUOTED)
def test_the_message_is_raised(message: str) -> None:
    assert is_raised(message)


def test_an_invented_message_is_seen() -> None:
    assert len(QUOTED) > 20
    assert not is_raised("[matmul] the sizes … are sad")
