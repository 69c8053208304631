"""Decisions of lab/torch_versions.py before and after it makes an environment."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from lab import torch_versions
from lab.torch_versions import ROOT, Outcome, main, read, requirements, table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPORT = """<?xml version="1.0"?><testsuites>
<testsuite name="pytest" errors="2" failures="3" skipped="5" tests="17" time="1.5"/>
</testsuites>"""


def test_pytests_report_is_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert read(tmp_path / "report.xml") == (7, 5, 5)


def test_the_extra_spans_the_tested_releases() -> None:
    source = (ROOT / "dl4all/pytorch/device/versions.py").read_text(
        encoding="utf-8"
    )  # importing it needs PyTorch
    (tested,) = [
        ast.literal_eval(line.value)
        for line in ast.parse(source).body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "TESTED"
    ]
    minors = [int(release.split(".")[1]) for release in tested]
    assert minors == list(range(minors[0], minors[-1] + 1)), "a minor release was left out"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["torch"] == [f"torch>={tested[0]},<2.{minors[-1] + 1}"]
    page = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
    assert not [release for release in tested if f"\n| {release} | " not in page]


def test_requirements_are_the_projects_without_pytorch() -> None:
    extras = {"data": ["scikit-learn>=1.4"], "test": ["torch==2.13.0", "pytest>=8", "pytest-xdist>=3.5"]}
    project = {"dependencies": ["numpy>=1.26"], "optional-dependencies": extras}
    with pytest.raises(click.ClickException, match="no extra has expecttest, pyyaml, hypothesis, which"):
        requirements(project)
    extras["test"] += ["expecttest>=0.2", "pyyaml>=6", "hypothesis>=6"]
    chosen = requirements(project)
    assert {"numpy>=1.26", "pytest>=8", "scikit-learn>=1.4"} <= set(chosen)
    assert not [line for line in chosen if line.startswith("torch")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["2.14"], "'2.14' is no release of PyTorch"),
        (["2.14.1", "--keep", str(ROOT / "build")], "is in the checkout"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert message in done.output


GOOD = Outcome("2.3.1", "2.3.1+cpu", passed=7, skipped=5, seconds=3.2)


@pytest.mark.parametrize(
    ("second", "result"),
    [
        (Outcome("2.5.7", "2.5.7+cu13", passed=11, failed=1), "failures"),
        (Outcome("2.5.7", error="it could not be installed"), "it could not be installed"),
        (Outcome("2.5.7", "2.5.7+cu13", passed=3, error="pytest ended with 2"), "pytest ended with 2"),
        (Outcome("2.5.7", "2.5.7+cu13", skipped=11), "no test ran"),
    ],
)
def test_one_bad_release_is_a_failure(
    second: Outcome, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([GOOD, second])
    monkeypatch.setattr(torch_versions, "trial", lambda *_: next(outcomes))
    done = CliRunner().invoke(main, ["2.3.1", "2.5.7", "--keep", str(tmp_path)])
    assert done.exit_code == 1
    console = Console(width=100)
    with console.capture() as shown:
        console.print(table([GOOD, second]))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.get().splitlines()]
    assert ["2.3.1", "2.3.1+cpu", "good", "7", "0", "5", "3"] in rows
    assert [second.release, second.build, result] in [row[:3] for row in rows]


def test_good_releases_are_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_versions, "trial", lambda *_: GOOD)
    assert CliRunner().invoke(main, ["2.3.1", "--keep", str(tmp_path)]).exit_code == 0
