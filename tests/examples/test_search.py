"""The examples that search: what they find keeps its limit, and they are scripts for the command, too."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dl4all.cli import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMITS = {"search_digits": r"([\d.]+) ms a call on cpu", "search_transformer": r"([\d.]+) MB; \d+ networks"}


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_found_keeps_its_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"examples.{name}")
    monkeypatch.setattr(module, "EPOCHS", 2)
    done = CliRunner().invoke(module.main, ["--device", "cpu", "--trials", "2"])
    assert done.exception is None, repr(done.exception)
    accuracy = re.search(r"test accuracy ([\d.]+)%", done.output)
    assert accuracy is not None
    assert float(accuracy[1]) > 30
    limit = re.search(LIMITS[name], done.output)
    assert limit is not None
    if name == "search_transformer":  # milliseconds are predicted, and these measured
        assert float(limit[1]) <= module.MEGABYTES


def test_an_example_is_a_script_of_the_command() -> None:
    done = CliRunner().invoke(
        cli, ["search", str(EXAMPLES / "search_transformer.py"), "--trials", "1", "--device", "cpu", "--json"]
    )
    assert done.exception is None, repr(done.exception)
    assert json.loads(done.stdout)["trials"]["complete"] == 1
