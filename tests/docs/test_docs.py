"""What the pages name exists: files, shaders, modules; and each error stands in the tree of errors."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from dl4all import errors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|pyi|comp|glsl|sh|toml|yml|json|md))(?:::\w+)?`")
LINKED = re.compile(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)")
ELSEWHERE = re.compile(r"^(my_package|mesa|lib|usr|etc)/")
PARTS = ("", "dl4all", "dl4all/ops", "shaders", "docs")


def missing(page: Path) -> list[str]:
    """The paths that a page names and that are not there."""
    text = page.read_text("utf-8")
    made = re.findall(r"^New file `([^`]+)`:", text, re.M)  # by the recipes
    named = [name for name in NAMED.findall(text) if name not in made and not ELSEWHERE.match(name)]
    linked = LINKED.findall(text)
    return [name for name in named if not any((ROOT / part / name).exists() for part in PARTS)] + [
        link for link in linked if not (page.parent / link).exists()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_files_that_exist(page: Path) -> None:
    assert not missing(page)


def test_a_missing_file_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`shaders/pool/max_pool3000.comp`, `README.md`, `dl4all/ops/core/op.py`, [a](b.md)")
    assert missing(page) == ["shaders/pool/max_pool3000.comp", "b.md"]


def test_every_error_stands_in_the_tree_and_the_list() -> None:
    classes = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert classes == set(errors.__all__)
    tree = re.findall(r"\b(\w+Error)\b", str(errors.__doc__).partition("A message")[0])
    assert classes <= set(tree)
