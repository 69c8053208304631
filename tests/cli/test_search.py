"""``dl4all search``: a script's space, its best networks, and what can be wrong with a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dl4all.cli import cli
from dl4all.cli.processes.search import ALGORITHMS
from dl4all.errors import ArgumentError, ConfigError
from dl4all.search import samplers

SCRIPT = """
import functools
import dl4all as dl

@functools.cache
def target():
    return 17

def net(s):
    s.require(parameters=25, milliseconds=1e3, inputs=(2, 3))
    act = s.choice("act", {"relu": dl.nn.ReLU, "tanh": dl.nn.Tanh})
    return dl.nn.Sequential(dl.nn.Linear(3, s.integer("width", 1, 9)), act())

def objective(model, trial):
    if trial.params["width"] == 2:
        raise ValueError("two is unlucky")
    return abs(model[0].out_features * 4 - target())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(
        cli, ["search", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "140"}
    )


def test_the_best_networks_and_the_errors(script: Path) -> None:
    done = invoke(script, "--trials", 30, "--minimize", "--seed", 0, "--device", "cpu")
    assert done.exit_code == 0
    assert "Best of search" in done.stdout
    assert "width=4" in done.stdout
    assert "importance of width: " in done.stdout
    assert "trials failed: ValueError: two is unlucky" in done.stdout
    lines = done.stderr.splitlines()
    assert sum(line.startswith("trial ") for line in lines) >= 30
    assert any(": infeasible, " in line for line in lines)


def test_json_of_a_search_on_all_devices_that_goes_on(script: Path, tmp_path: Path) -> None:
    options = ["--minimize", "--storage", tmp_path / "study.db", "--algorithm", "evolution", "--json"]
    first = json.loads(invoke(script, "--trials", 10, "--workers", 1, *options).stdout)
    second = json.loads(invoke(script, "--trials", 20, "--resume", "--device", "cpu", *options).stdout)
    for report, count in ((first, 10), (second, 20)):
        assert report["trials"]["complete"] + report["trials"]["fail"] == count
        assert set(report["importances"]) == {"width", "act"}
    best = second["best"][0]
    assert best["values"][0] <= first["best"][0]["values"][0]
    assert {"number", "params", "device", "seconds", "costs"} <= best.keys()
    with pytest.raises(ArgumentError, match="resume=True"):
        invoke(script, "--trials", 20, *options)


@pytest.mark.parametrize("several", [False, True])
def test_pictures(script: Path, tmp_path: Path, several: bool) -> None:
    if several:
        returned = "return model[0].out_features, trial.number"
        head, _, _ = SCRIPT.rpartition("    return abs")
        script.write_text(f'directions = ["maximize", "minimize"]\n{head}    {returned}\n')
    folder = tmp_path / "pictures"
    assert invoke(script, "--trials", 12, "--device", "cpu", "--pictures", folder).exit_code == 0
    ends = ["_0", "_1"] if several else [""]
    names = {f"{name}{end}.png" for name in ("history", "importances") for end in ends}
    assert {path.name for path in folder.iterdir()} == names | ({"pareto.png"} if several else set())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no function net and no objective"),
        ("def net(s): pass", "defines no function objective"),
        ("1 / 0", "ZeroDivisionError"),
        ("def net(s: pass", "SyntaxError"),
        ("def net(s): pass\ndef objective(m, t): pass", "the space is empty"),
        (SCRIPT.replace("return abs", "return None and abs"), "no trial has a value"),
    ],
)
def test_scripts_that_are_wrong(script: Path, text: str, message: str) -> None:
    script.write_text(text)
    with pytest.raises((ArgumentError, ConfigError), match=message):
        invoke(script, "--trials", 2, "--device", "cpu")


def test_algorithms_are_those_of_the_library() -> None:
    assert list(ALGORITHMS) == list(samplers.ALGORITHMS)
