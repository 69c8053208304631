"""Run tests/pytorch/device with other releases of PyTorch, each in an environment of its own.

    python lab/torch_versions.py 2.12.1 2.14.1
    python lab/torch_versions.py 2.14.1 --keep ~/environments --pytest=-x --pytest=-n2

What a maintainer runs before a release: dl4all.torch uses private names of PyTorch, which any release may
change. PyTorch's build for the CPU is installed where an index has one, otherwise the plain wheel with all
that it needs (gigabytes). An environment lies in a temporary folder, or stays in the one that --keep names
and serves the next run too. Fails unless all tests pass with all releases.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).absolute().parents[1]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
NEEDED = ("pytest", "pytest-xdist", "expecttest", "pyyaml", "hypothesis", "scikit-learn")
"""Extras of pyproject.toml that tests/pytorch/device needs beside dl4all's own requirements."""
SCIPY = "scipy"  # the samples of some entries of PyTorch's database of ops


class Outcome(NamedTuple):
    """What became of one release; a run that stopped before its tests has an error instead of counts."""

    release: str
    build: str = "none"
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def good(self) -> bool:
        return self.passed > 0 and not self.failed and not self.error


def project() -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def requirements(project: dict[str, Any]) -> list[str]:
    """The requirements of dl4all and of tests/pytorch/device, PyTorch left out.

    Args:
        project: the table ``project`` of a pyproject.toml.

    Raises:
        click.ClickException: no extra has one of :data:`NEEDED`.

    Example:
        >>> [line for line in requirements(project()) if line.startswith(("numpy", "pytest>", "torch"))]
        ['numpy>=1.26', 'pytest>=8']
    """
    extras = {_name(line): line for lines in project["optional-dependencies"].values() for line in lines}
    lacking = [name for name in NEEDED if name not in extras]
    if lacking:
        raise click.ClickException(
            f"pyproject.toml: no extra has {', '.join(lacking)}, which tests/pytorch/device needs"
        )
    return [*project["dependencies"], *(extras[name] for name in NEEDED), SCIPY]


def read(report: Path) -> tuple[int, int, int]:
    """How many tests passed, failed (or could not run) and were skipped, from pytest's JUnit file."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))

    def total(name: str) -> int:
        return sum(int(suite.get(name, "0")) for suite in suites)

    failed, skipped = total("failures") + total("errors"), total("skipped")
    return total("tests") - failed - skipped, failed, skipped


def trial(release: str, folder: Path, index: str, options: Sequence[str]) -> Outcome:
    """Run tests/pytorch/device with one release; output goes to the terminal.

    Args:
        release: what ``torch==`` takes, as in 2.14.1.
        folder: where the environment is, or will be made.
        index: where PyTorch's builds for the CPU are.
        options: pytest's.
    """
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DL4ALL"))}

    def run(*command: object) -> int:
        words = [str(word) for word in command]
        print("  $", " ".join(words), flush=True)
        return subprocess.run(words, cwd=ROOT, env=clean).returncode

    def install(*words: object) -> int:
        return run(python, "-m", "pip", "install", "-q", *words)

    if not python.exists() and run(sys.executable, "-m", "venv", folder):
        return Outcome(release, error="no environment could be made")
    build = _build(python, clean)
    if build.partition("+")[0] != release:
        print(f"PyTorch's build for the CPU from {index}, if there is one:", flush=True)
        if install("--extra-index-url", index, f"torch=={release}+cpu") and install(f"torch=={release}"):
            return Outcome(release, error="it could not be installed")
        build = _build(python, clean)
        if build.partition("+")[0] != release:
            return Outcome(release, build, error="it was installed and cannot be imported")
    if install(*requirements(project())):
        return Outcome(release, build, error="what the tests need could not be installed")

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dl4all-torch-report-") as reports:
        report = Path(reports) / "report.xml"
        pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}")
        status = run(*pytest, *options, "tests/pytorch/device")
        seconds = time.monotonic() - start
        if not report.exists():
            return Outcome(release, build, seconds=seconds, error=f"pytest ended with {status} and no report")
        passed, failed, skipped = read(report)
    error = f"pytest ended with {status}" if status and not failed else ""
    return Outcome(release, build, passed, failed, skipped, seconds, error)


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row for each release."""
    shown = Table("release", "build", "result")
    for title in ("passed", "failed", "skipped", "seconds"):
        shown.add_column(title, justify="right")
    for outcome in outcomes:
        result = (
            "good" if outcome.good else outcome.error or ("failures" if outcome.failed else "no test ran")
        )
        counts = (outcome.passed, outcome.failed, outcome.skipped, round(outcome.seconds))
        shown.add_row(outcome.release, outcome.build, result, *map(str, counts))
    return shown


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0].lower()


def _build(python: Path, environment: dict[str, str]) -> str:
    """PyTorch's version with its build, as in 2.13.0+cpu, or none."""
    command = [str(python), "-c", "import torch; print(torch.__version__)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "none"


def _releases(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if not re.fullmatch(r"\d+\.\d+\.\d+", value):
            raise click.BadParameter(f"{value!r} is no release of PyTorch; expected one such as 2.14.1")
    return values


@click.command(
    help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("releases", nargs=-1, required=True, callback=_releases)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Where environments stay.")
@click.option("--index", default=CPU_BUILDS, show_default=True, help="Where PyTorch's CPU builds are.")
@click.option("--pytest", "options", multiple=True, metavar="OPTION", help="Goes to pytest; again for more.")
def main(releases: tuple[str, ...], keep: Path | None, index: str, options: tuple[str, ...]) -> None:
    if keep is not None and keep.resolve().is_relative_to(ROOT.resolve()):
        raise click.UsageError(f"--keep {keep} is in the checkout; name a folder outside it")
    outcomes = []
    for release in releases:
        print(f"\n== PyTorch {release}", flush=True)
        with tempfile.TemporaryDirectory(prefix="dl4all-torch-") as temporary:
            folder = (Path(temporary) if keep is None else keep.resolve()) / f"torch-{release}"
            outcomes.append(trial(release, folder, index, options))
    Console().print(table(outcomes))
    if not all(outcome.good for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
