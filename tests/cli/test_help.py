"""The command's help: quick, narrow, and about each command; and its other ways to be called."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli import COMMANDS, MODULES, cli
from tests.conftest import run_python

CLI = Path(dl.__file__).parent / "cli"
CALL = "import sys; sys.argv[1:] = {}; from dl4all.cli import main; main()"
HELPERS = {
    "checks",
    "llm.options",
    "llm.rates",
    "mode_ladder",
    "mode_picture",
    "model_inputs",
    "processes.lighthouse",
    "processes.supervisor",
    "processes.trials",
    "processes.worker",
    "report",
    "run",
    "script",
}


def test_every_command_is_in_the_help() -> None:
    paths = [path.relative_to(CLI).with_suffix("").parts for path in CLI.rglob("*.py")]
    modules = {".".join(parts) for parts in paths if parts[-1] != "__init__"} - HELPERS
    assert {MODULES.get(name, (name.replace("-", "_"),))[0] for name in COMMANDS} == modules
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.name == name
        assert command.help


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)])
def test_help_fits_80_columns(arguments: list[str]) -> None:
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*arguments, "--help"])
    assert ran.exit_code == 0
    assert max(map(len, ran.output.splitlines())) <= 80


def test_help_loads_neither_numpy_nor_the_library() -> None:
    code = "import sys; from dl4all.cli import cli; cli.main(['--help'], standalone_mode=False)"
    ran = run_python(f"{code}; print(sorted(n for n in sys.modules if n.count('.') < 2))", ())
    listed = ran.stdout.splitlines()[-1]
    assert "'dl4all.cli'" in listed
    for heavy in ("numpy", "rich", "dl4all.runtime", "dl4all.ops", "cffi"):
        assert f"'{heavy}'" not in listed


def test_an_unknown_command_is_named() -> None:
    ran = run_python(CALL.format(["devcies"]))
    assert ran.returncode == 2
    assert "No such command 'devcies'" in ran.stderr


def test_devices_are_shown_in_80_columns() -> None:
    def shown(*arguments: str, columns: str) -> list[str]:
        ran = run_python(CALL.format(["devices", *arguments]), FORCE_COLOR="1", COLUMNS=columns)
        return re.sub(r"\x1b\[[\d;]*m", "", ran.stdout).splitlines()

    narrow = shown(columns="80")
    assert max(map(len, narrow)) <= 80
    assert "hardware" in narrow[1]
    assert "PCI" not in narrow[1]
    assert "PCI" in shown(columns="160")[1]
    assert "PCI" in shown("--wide", columns="80")[1]


def test_a_report_has_each_benchmark_of_each_device(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    arguments = ["doctor", "--report", str(path)]
    ran = run_python(CALL.format(arguments), DL4ALL_CACHE_DIR=str(tmp_path / "cache"))
    assert path.exists(), ran.stderr
    report = json.loads(path.read_text("utf-8"))
    assert {name for device in report["devices"] for name in device["names"]} == set(report["benchmarks"])
    for device, found in report["benchmarks"].items():
        assert len(found) == 10
        assert [name for name, one in found.items() if not one["right"]] == [], device
        assert all(one["ms"] > 0 for one in found.values())
    assert str(Path.home()) not in path.read_text("utf-8")


def test_the_benchmarks_notice_wrong_results() -> None:
    report = import_module("dl4all.cli.report")
    arrays = {name: dl.rand(*shape, device="cpu").numpy() for name, shape in report.SHAPES.items()}
    expected = {name: report._run(work, "cpu", arrays)[0] for name, work in report.BENCHMARKS.items()}
    expected["matmul 512"] = expected["matmul 512"] * 1.01
    found = report._benchmarks("cpu", arrays, expected)
    assert [name for name, one in found.items() if not one["right"]] == ["matmul 512"]
