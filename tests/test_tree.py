"""Names of files and folders: nouns of the field, the same for ops, shaders and tests."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPS = ROOT / "dl4all" / "ops"
FAMILIES = sorted(path.name for path in OPS.iterdir() if (path / "__init__.py").exists())
PYTHON = sorted(
    path
    for part in ("dl4all", "runtime", "allocator", "scheduler", "tests", "benchmarks", "tools", "examples")
    for path in (ROOT / part).rglob("*.py")
    if path.resolve() == path  # the links inside dl4all/ lead to what is there already
)

VAGUE = re.compile(r"(^|_)(further|more|other|others|misc|helpers?|stuff|things)(_|$)")
GERUNDS = {
    "embedding", "indexing", "ordering", "padding", "pooling", "recording", "rounding", "staging", "timing",
    "training", "upsampling",
}  # fmt: skip
"""Words in -ing that stand as nouns in PyTorch's, NumPy's or Vulkan's documentation."""


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_named_by_nouns(path: Path) -> None:
    name = path.stem.removeprefix("test_")
    assert not VAGUE.search(name), "the name does not say what is in the file"
    if "tests" not in path.parts:
        last = name.rpartition("_")[2]
        assert not last.endswith("ing") or last in GERUNDS, "name the file by a noun"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_export_hides_a_module(family: str) -> None:
    """``import dl4all.ops.reduce.sums as m`` gives the module, not a function of its name."""
    package = importlib.import_module(f"dl4all.ops.{family}")
    modules = {path.stem for path in (OPS / family).glob("*.py")}
    assert not modules & set(getattr(package, "__all__", ()))


def test_no_export_hides_a_family() -> None:
    ops = importlib.import_module("dl4all.ops")
    assert not set(FAMILIES) & set(ops.__all__)


def test_shaders_lie_in_the_families_of_their_ops() -> None:
    folders = {path.name for path in (ROOT / "shaders").iterdir() if path.is_dir() and path.name != "spirv"}
    assert folders - {"include", "optim", "__pycache__"} <= set(FAMILIES)


def test_tests_lie_in_the_families_of_their_ops() -> None:
    folders = {path.name for path in (ROOT / "tests" / "ops").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} <= set(FAMILIES)


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_tell_one_story(path: Path) -> None:
    """About 500 lines at most; a table of cases may be longer."""
    assert len(path.read_text("utf-8").splitlines()) <= 600
