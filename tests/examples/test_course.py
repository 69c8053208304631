"""The course: from its first page to a compiled network, as a stranger would go."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.conftest import need

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "course"
HELPERS = {"measurement"}
ARGUMENTS = {
    "derivatives": ("--device", "cpu"),
    "memory": ("--largest", "16", "--repeat", "1"),
    "product": ("--size", "64", "--repeat", "1"),
    "sums": ("--elements", "65536", "--repeat", "1"),
    "divergence": ("--elements", "4096", "--repeat", "1"),
    "shader_cache": (),
    "modes": ("--device", "vulkan:0", "--repeat", "1"),
    "captures": ("--device", "cpu"),
    "translation": ("--device", "cpu", "--steps", "20", "--batch", "8"),
}
"""The scripts in the order of the pages, with sizes that are soon done."""
SAYS = {
    "derivatives": r"y'' at 0 is 2\.000\n.*Hessian",
    "memory": r"Stride    ns an element",
    "product": r"register-blocked .* of the peak\n",
    "sums": r"sum, one pass.*\nsum, tree",
    "divergence": r"4 branches, neighbours apart .* ms",
    "shader_cache": r"The cache holds files of .*\.spv\.",
    "modes": r"compiled .* dispatches\nop codes .* 1 dispatches",
    "captures": r"plain +1 graph .*\n.*if on a value +2 graphs .*\n.*uncompiled",
    "translation": r"-> \S+\n.* of 200 dates are right, on cpu",
}


def printed(name: str, *arguments: str) -> str:
    script = importlib.import_module(f"examples.course.{name}")
    done = CliRunner().invoke(script.main, [*ARGUMENTS[name], *arguments])
    assert done.exception is None, repr(done.exception)
    return done.output


@pytest.mark.vulkan
def test_from_the_first_page_to_a_compiled_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for name in ARGUMENTS:
        picture = () if name == "captures" else ("--picture", f"{name}.svg")
        output = printed(name, *picture)
        assert re.search(SAYS[name], output, re.S), f"{name}: {output}"
        assert not picture or "<svg" in (tmp_path / f"{name}.svg").read_text()


def test_every_page_has_its_script() -> None:
    listed = re.findall(r"^- \[.*?\]\((\w+)\.md\)", (PAGES / "README.md").read_text(), re.M)
    scripts = {path.stem for path in (ROOT / "examples" / "course").glob("*.py")} - HELPERS
    assert listed == list(ARGUMENTS)
    assert {path.stem for path in PAGES.glob("*.md")} - {"README"} == scripts == set(listed)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_page_names_its_script_and_has_an_exercise(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert f"python examples/course/{name}.py" in text
    assert re.search(
        r"## Exercise\n.*<details><summary>Solution</summary>\n.*```python\n.*assert", text, re.S
    )


def test_the_kernels_of_a_page_are_those_of_the_script() -> None:
    script = (ROOT / "examples" / "course" / "product.py").read_text()
    blocks = re.findall(r"```glsl\n(.*?)```", (PAGES / "product.md").read_text(), re.S)
    assert len(blocks) == 5
    for block in blocks:
        assert block in script
