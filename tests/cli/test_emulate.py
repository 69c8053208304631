"""``dl4all emulate``, run as a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dl4all.cli import cli
from dl4all.errors import Dl4allError
from dl4all.graph.op_codes.assembler import parse


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["emulate", *arguments])


def as_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_the_report_as_json() -> None:
    found = as_json("lenet", "--array", "8x4", "--batch", "2", "--run", "cpu")
    assert found["array"] == [8, 4]
    assert found["cycles"] > 0
    assert set(found["utilisation"]) == {"array", "vector", "dma"}
    assert all(0 < share <= 1 for share in found["utilisation"].values())
    assert found["multiply_adds"] == 2 * 416_520
    assert found["difference"] < 1e-6
    assert {one["op"] for one in found["ops"]} == {"conv2d", "relu", "max_pool2d", "linear"}


def test_sizes_change_the_cycles() -> None:
    usual = as_json("gpt", "--scratchpad", "256")["cycles"]
    assert as_json("gpt", "--scratchpad", "256", "--dram", "2")["cycles"] > usual
    assert as_json("gpt", "--scratchpad", "256", "--dataflow", "ws")["cycles"] != usual
    slow = as_json("gpt", "--scratchpad", "256", "--clock", "0.5", "--dram", "12.8")
    assert slow["cycles"] == usual
    assert slow["seconds"] == pytest.approx(usual * 2e-9)


def test_the_tables() -> None:
    result = run("lenet", "--report")
    assert result.exception is None, result.output
    for word in ("cycles", "roofline", "energy", "conv2d", "multiply-adds"):
        assert word in result.stdout
    assert "conv2d" not in run("lenet").stdout


def test_pictures_and_programs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture, program = tmp_path / "lenet.svg", tmp_path / "lenet.txt"
    result = run("lenet", "--picture", str(picture), "--program", str(program))
    assert result.exception is None, result.output
    assert "<svg" in picture.read_text()
    assert len(parse(program.read_text()).instructions) > 20


def test_a_function_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import dl4all as dl\n\n\ndef made():\n    return dl.nn.Linear(7, 5), dl.ones(3, 7)\n\n\n"
        "def empty():\n    return (dl.nn.Linear(7, 5),)\n"
    )
    assert as_json(f"{file}:made", "--run", "cpu")["multiply_adds"] == 3 * 7 * 5
    with pytest.raises(Dl4allError, match="must return a network and the tensors to call it with"):
        raise run(f"{file}:empty").exception  # type: ignore[misc]
    with pytest.raises(Dl4allError, match="there is no function 'other'"):
        raise run(f"{file}:other").exception  # type: ignore[misc]
    with pytest.raises(Dl4allError, match=r"none\.py: cannot be read"):
        raise run(f"{tmp_path}/none.py:made").exception  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lenett",), "no model 'lenett'.*lenet.*and FILE.py:FUNCTION"),
        (("tagger",), "has no instructions"),
        (
            ("lenet", "--scratchpad", "1", "--picture", "/none/a.svg"),
            "fits into no scratchpad|cannot be written",
        ),
    ],
)
def test_errors(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(Dl4allError, match=message):
        raise run(*arguments).exception  # type: ignore[misc]


@pytest.mark.parametrize("array", ["16", "0x4", "16x", "axb"])
def test_arrays_that_are_none(array: str) -> None:
    result = run("lenet", "--array", array)
    assert result.exit_code == 2
    assert "expected rows and columns such as 16x16" in result.output
