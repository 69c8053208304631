"""Every example in a docstring, and every Python block of the README, gives what it says."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import dl4all

ROOT = Path(__file__).parents[2]
PACKAGE = Path(dl4all.__file__).parent
README = ROOT / "README.md"


def modules() -> list[str]:
    """Every module of the package, runtime, allocator and scheduler under dl4all included."""
    names = []
    folders = [PACKAGE]
    while folders:
        folder = folders.pop()  # by hand, because rglob of some Pythons does not follow links
        for path in sorted(folder.iterdir()):
            if path.is_dir() and (path / "__init__.py").exists():
                folders.append(path)
            elif path.suffix == ".py":
                parts = path.relative_to(PACKAGE).with_suffix("").parts
                names.append(".".join(("dl4all", *(part for part in parts if part != "__init__"))))
    return sorted(names)


def blocks() -> list[str]:
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(text: doctest.DocTest, output: list[str]) -> doctest.TestResults:
    return doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(text, out=output.append)


def test_modules_are_found() -> None:
    found = modules()
    assert len(found) > 50
    assert {
        "dl4all",
        "dl4all.ops.core.tensor_base",
        "dl4all.runtime.registry",
        "dl4all.allocator.strategies.size_class",
    } <= set(found)
    assert {"dl4all.scheduler.device.device", "dl4all.runtime.spirv.module_store", "dl4all.shaders"} <= set(
        found
    )


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")  # "auto" must not depend on the machine
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for text in finder.find(module, name):
        output: list[str] = []
        assert run(text, output).failed == 0, "".join(output)


def test_there_are_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = sum(
        len(text.examples) for name in modules() for text in finder.find(importlib.import_module(name), name)
    )
    assert examples > 60


def test_a_wrong_example_is_seen() -> None:
    text = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    output: list[str] = []
    assert run(text, output).failed == 1


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.strip().split("\n")[0][:40])
def test_readme(block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sessions are compared with their output; plain code must run."""
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    if ">>>" in block:
        output: list[str] = []
        text = doctest.DocTestParser().get_doctest(block, {}, "README.md", str(README), 0)
        assert run(text, output).failed == 0, "".join(output)
    else:
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
