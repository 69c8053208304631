"""The environment of libraries over PyTorch, without them."""

from __future__ import annotations

import sys

import pytest

from lab.torch_frameworks.__main__ import FRAMEWORKS, differences
from lab.torch_versions import project


def test_releases_are_those_of_the_tests() -> None:
    assert all("==" in needed for needed in FRAMEWORKS)
    extra = {needed for needed in project()["optional-dependencies"]["test"] if "==" in needed}
    shared = {needed.partition("==")[0] for needed in FRAMEWORKS} & {n.partition("==")[0] for n in extra}
    assert shared >= {"torch", "transformers"}
    assert {needed for needed in FRAMEWORKS if needed.partition("==")[0] in shared} <= extra


def test_an_environment_without_them_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="the checks on cpu ended with 1"):
        differences(sys.executable, "cpu")
    assert "ModuleNotFoundError" in capfd.readouterr().err
