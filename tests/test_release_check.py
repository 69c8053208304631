"""What tools/release_check.py refuses before it installs anything."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from tests.conftest import run_python
from tools.release_check import check_tag, distributions, tag

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
WHEEL, SDIST = "dl4all-0.1.0-py3-none-any.whl", "dl4all-0.1.0.tar.gz"


def test_one_wheel_and_one_sdist_of_one_version(tmp_path: Path) -> None:
    for name in (WHEEL, SDIST):
        (tmp_path / name).touch()
    assert distributions(tmp_path) == (tmp_path / WHEEL, tmp_path / SDIST, "0.1.0")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([WHEEL], "expected one wheel and one sdist, got 1 and 0"),
        ([WHEEL, SDIST, "dl4all-0.0.9-py3-none-any.whl"], "got 2 and 1"),
        ([WHEEL, "dl4all-0.2.0.tar.gz"], r"the wheel is of 0\.1\.0, the sdist of 0\.2\.0"),
    ],
)
def test_anything_else_is_refused(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(click.ClickException, match=message):
        distributions(tmp_path)


def test_the_tag_is_githubs_or_gitlabs() -> None:
    assert tag({"GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": "v1.2.3"}) == "v1.2.3"
    assert tag({"GITHUB_REF_TYPE": "branch", "GITHUB_REF_NAME": "v1.2.3"}) == ""
    assert tag({"CI_COMMIT_TAG": "v1.2.3"}) == "v1.2.3"
    assert tag({}) == ""


def test_a_version_is_released_under_its_own_tag_only() -> None:
    check_tag("", "0.1.0")
    check_tag("v0.1.0", "0.1.0")
    with pytest.raises(click.ClickException, match=r"the tag is v0\.2\.0, the distributions are of 0\.1\.0"):
        check_tag("v0.2.0", "0.1.0")


IMPORTED = """
import sys
from importlib.metadata import packages_distributions
from dl4all.ops import all_shaders
from dl4all.runtime import spirv
all_shaders()
modules = {name.partition(".")[0] for name in sys.modules}
print(*{name for module, names in packages_distributions().items() if module in modules for name in names})
"""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def test_a_build_has_what_it_imports() -> None:
    """It runs in an environment of its own, with nothing but what ``build-system`` names."""
    done = run_python(IMPORTED, ())  # the modules that setup.py imports
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = names(project["project"]["dependencies"]) & set(done.stdout.split())
    assert "rich" in needed
    assert needed <= names(project["build-system"]["requires"])
