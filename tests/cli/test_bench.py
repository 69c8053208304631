"""``dl4all bench modes``, run as a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dl4all.cli import cli
from dl4all.errors import Dl4allError
from dl4all.scheduler.device.current import device as open_device

WAYS = ["CPU reference", "immediate, first call", "immediate", "graph", "compiled", "op codes"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bench", "modes", *arguments], env={"COLUMNS": "160"})


def as_json(*arguments: str) -> dict[str, dict[str, Any]]:
    result = run(*arguments, "--repeat", "1", "--json")
    assert result.exception is None, repr(result.exception)
    return {mode["name"]: mode for mode in json.loads(result.stdout)["modes"]}


def test_on_the_cpu_there_is_no_reference_and_no_interpreter() -> None:
    found = as_json("mlp", "--device", "cpu", "--batch", "3")
    assert list(found) == WAYS[1:]
    assert "CPU" in found["op codes"]["reason"]
    assert found["compiled"]["dispatches"] <= found["graph"]["dispatches"] <= found["immediate"]["dispatches"]


def test_the_ladder(device: str) -> None:
    if open_device(device).is_host:
        pytest.skip("has fewer ways")
    found = as_json("mlp", "--device", device, "--batch", "3")
    assert list(found) == WAYS
    assert found["op codes"]["reason"] == ""
    dispatches = [found[way]["dispatches"] for way in WAYS[2:]]
    assert dispatches == sorted(dispatches, reverse=True)
    assert dispatches[2] < dispatches[0]
    assert all(mode["milliseconds"] > 0 for mode in found.values())
    assert all(found[way]["nbytes"] > 4 * 784 * 128 for way in WAYS[2:])


def test_a_training_step_has_an_update(device: str) -> None:
    inference, training = (as_json("mlp", "--device", device, *more) for more in ((), ("--train",)))
    assert training["compiled"]["dispatches"] > inference["compiled"]["dispatches"]
    assert training["immediate"]["nbytes"] > 2 * inference["immediate"]["nbytes"]
    assert not training["compiled"]["reason"]


def test_ops_without_instructions_are_named(device: str) -> None:
    if open_device(device).is_host:
        pytest.skip("has no interpreter")
    found = as_json("lenet", "--device", device)
    assert "conv2d" in found["op codes"]["reason"]
    assert found["op codes"]["milliseconds"] is None


def test_the_table_and_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "modes.svg"
    result = run("tagger", "--device", "cpu", "--repeat", "1", "--picture", str(file))
    assert result.exception is None, repr(result.exception)
    assert "inference of tagger, batch 1, on cpu" in result.stdout
    assert "times compiled's" in result.stdout
    assert "op codes: not measured: there is no interpreter" in result.stdout
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lenet5",), ("[bench]", "lenet5", "known are mlp, lenet, gpt")),
        (("mlp", "--device", "cuda:0"), ("cuda:0",)),
        (("mlp", "--batch", "0"), ("--batch",)),
        (("mlp", "--device", "cpu", "--repeat", "1", "--picture", "no/where/x.svg"), ("no/where/x.svg",)),
        (("mlp", "--device", "cpu", "--repeat", "1", "--picture", "x.doc"), ("x.doc",)),
    ],
)
def test_bad_input(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, (Dl4allError, SystemExit))
    said = str(result.exception) + result.output
    assert all(word in said for word in words)
