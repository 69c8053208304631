"""Names of files and folders: nouns of the field, the same for ops, shaders and tests."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.support.parts import PARTS

ROOT = Path(__file__).parents[1]
OPS = ROOT / "dl4all" / "ops"
FAMILIES = sorted(path.name for path in OPS.iterdir() if (path / "__init__.py").exists())
PYTHON = sorted(
    path
    for part in ("dl4all", *PARTS, "tests", "benchmarks", "lab", "tools", "examples")
    for path in (ROOT / part).rglob("*.py")
    if path.resolve() == path  # the links inside dl4all/ lead to what is there already
)

VAGUE = re.compile(r"(^|_)(further|more|other|others|misc|helpers?|stuff|things)(_|$)")
GERUNDS = {
    "embedding", "folding", "indexing", "multiprocessing", "ordering", "padding", "pooling", "recording",
    "rounding", "serving", "sorting", "staging", "timing", "training", "upsampling",
}  # fmt: skip
"""Words in -ing that stand as nouns in the documentation of PyTorch, NumPy, Vulkan or compilers."""


def _is_vague(path: Path) -> bool:
    name = path.stem.removeprefix("test_")
    last = name.rpartition("_")[2]
    return bool(VAGUE.search(name)) or (
        "tests" not in path.parts and last.endswith("ing") and last not in GERUNDS
    )


def test_files_are_named_by_nouns() -> None:
    assert not [str(path.relative_to(ROOT)) for path in PYTHON if _is_vague(path)]
    assert _is_vague(ROOT / "dl4all/tensor/further.py")
    assert _is_vague(ROOT / "dl4all/tensor/turning.py")


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
    assert folders - {"include", "op_codes", "optim", "__pycache__"} <= set(FAMILIES)


def test_host_kernels_lie_in_the_families_of_their_ops() -> None:
    folders = {path.name for path in (ROOT / "host_kernels").iterdir() if path.is_dir()}
    assert folders - {"lib", "optim", "__pycache__"} <= set(FAMILIES)


def test_tests_lie_in_the_families_of_their_ops() -> None:
    folders = {path.name for path in (ROOT / "tests" / "ops").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} <= set(FAMILIES)


def test_files_tell_one_story() -> None:
    """About 500 lines at most."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in PYTHON}
    assert not {name: lines for name, lines in lengths.items() if lines > 600}
