"""``dl4all place``, run as a command."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dl4all.cli import cli
from dl4all.errors import Dl4allError
from tests.conftest import REPOSITORY
from tests.support.forked_process import run_forked

COMMAND = (sys.executable, "-c", "from dl4all.cli import main; main()")
SMALL = ("lenet", "--batch", "16")
TWO = ("--simulated", "gflops=10,memory=1.5e6", "--simulated", "gflops=20, gb_per_s=50,memory=1.5e6")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "cache"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["place", *arguments])


def as_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_the_command_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = run_forked(
        [*COMMAND, "place", *SMALL, *TWO, "--micro-batches", "4"],
        cwd=REPOSITORY,
        env={**os.environ, "DL4ALL_CACHE_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "forward ms" in done.stdout
    assert "LeNet: a step of training of 4 micro-batches in" in done.stdout
    assert "alone" in done.stdout
    timelines = [line for line in done.stdout.splitlines() if line.startswith("simulated:")]
    assert len(timelines) == 2
    assert all("F" in line and "B" in line for line in timelines)


def test_json_says_what_the_table_says() -> None:
    found = as_json(*SMALL, *TWO)
    assert found["model"] == "LeNet"
    modules = [module for stage in found["stages"] for module in stage["modules"]]
    assert list(dict.fromkeys(modules)) == ["conv1", "relu", "pool", "conv2", "fc1", "fc2", "fc3"]
    assert found["seconds"] > 0
    assert found["training"] is True
    table = run(*SMALL, *TWO).output
    assert f"in {found['seconds'] * 1e3:.3f} ms" in table
    assert found["reason"].partition(" simulated")[0] in table


def test_options_change_what_is_predicted() -> None:
    usual = as_json(*SMALL, *TWO)["seconds"]
    assert as_json(*SMALL, *TWO, "--inference")["seconds"] < usual
    assert as_json("lenet", "--batch", "4", *TWO)["seconds"] < usual
    assert as_json("lenet", "--input", "16,1,28,28", *TWO)["seconds"] == pytest.approx(usual)
    memory = [
        as_json(*SMALL, "--simulated", "gflops=1", "--optimizer", name)["stages"][0]["memory"]["optimizer"]
        for name in ("sgd", "momentum", "adam")
    ]
    assert memory == [0, memory[2] // 2, memory[2]]
    assert memory[2] > 0


def test_arguments_of_the_network() -> None:
    def parameters(*options: str) -> int:
        (stage,) = as_json("mlp", "--input", "8,10", "--simulated", "gflops=1", *options)["stages"]
        found: int = stage["memory"]["parameters"]
        return found

    assert parameters("--set", "hidden=[7]", "--classes", "3") == 4 * (10 * 7 + 7 + 7 * 3 + 3)
    assert parameters("--set", "hidden=[7, 5]") == 4 * (10 * 7 + 7 + 7 * 5 + 5 + 5 * 10 + 10)


def test_real_devices_by_name_and_all() -> None:
    assert [stage["device"] for stage in as_json(*SMALL, "--devices", "cpu")["stages"]] == ["cpu"]
    found = as_json(*SMALL)
    names = {stage["device"] for stage in found["stages"]} | {
        name for other in found["alternatives"] for name in other["devices"]
    }
    assert "cpu" in names
    both = as_json(*SMALL, "--devices", "cpu", "--simulated", "gflops=1e6,gb_per_s=1e6,launch_us=0.01")
    assert both["stages"][0]["device"].startswith("simulated:")


def test_measuring_changes_predictions_and_lasts(own_cache: Path) -> None:
    before = as_json(*SMALL, "--devices", "cpu")
    measured = as_json(*SMALL, "--devices", "cpu", "--measure")
    assert measured["seconds"] != before["seconds"]
    assert as_json(*SMALL, "--devices", "cpu")["seconds"] == measured["seconds"]
    assert len(list((own_cache / "speeds").iterdir())) == 1


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "step.svg"
    assert run(*SMALL, *TWO, "--picture", str(file)).exception is None
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lenett"], "did you mean 'lenet'"),
        ([], "MODEL"),
        ([*SMALL, "--input", "3,x"], "8,3,224,224"),
        (["lenet", "--input", "3"], "samples first"),
        ([*SMALL, "--simulated", "gflop=1"], "gflops, gb_per_s"),
        ([*SMALL, "--simulated", "gflops=-1"], "gflops=-1"),
        ([*SMALL, "--simulated", "gflops=1,memory=1000"], "no split fits"),
        ([*SMALL, "--simulated", "gflops=1", "--micro-batches", "17"], "too few for 17"),
        ([*SMALL, "--devices", "cpu,tpu"], "unknown device 'tpu'"),
        ([*SMALL, "--devices", "cpu,cpu"], "named twice"),
        (["mlp", "--set", "hiden=[3]"], "did you mean 'hidden'"),
        (["mlp", "--set", "hidden=3"], "must be a list"),
        (["mlp", "--set", "hidden=[3"], "must be a list"),
        (["lenet", "--input", "1,8", "--devices", "cpu"], "conv2d"),
        ([*SMALL, *TWO, "--picture", "no/where/p.svg"], "cannot be written"),
    ],
)
def test_mistakes_are_told(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    said = str(result.exception) if isinstance(result.exception, Dl4allError) else result.output
    assert words in said
    assert isinstance(result.exception, (Dl4allError, SystemExit))
