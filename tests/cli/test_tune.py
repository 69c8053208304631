"""``dl4all tune``. What is faster is made up here; the results that are compared are real."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dl4all as dl
from dl4all.cli import cli
from dl4all.errors import OutOfMemoryError
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.autotune import SPACES
from dl4all.ops.linalg import gemm, matvec
from dl4all.runtime.records import device_records
from tests.cli.conftest import Command
from tests.conftest import need

tune_command = import_module("dl4all.cli.tune")  # the package has the command under this name

pytestmark = pytest.mark.vulkan
SMALL = (("one layer", matvec.MatvecProblem(1, 40, 70)), ("its twin", matvec.MatvecProblem(3, 41, 71)))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two problems of one class, and one of another kernel; the tiles are the fastest of all."""
    need("vulkan:0")
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("DL4ALL_TUNE", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SPACES, "linear", dataclasses.replace(matvec.SPACE, problems=SMALL))
    products = [("square", gemm.GemmProblem(8, 8, 8, 8, 8, 8))]
    monkeypatch.setitem(SPACES, "gemm", dataclasses.replace(gemm.SPACE, problems=products))
    monkeypatch.setitem(SPACES, "conv", dataclasses.replace(SPACES["conv"], problems=()))
    monkeypatch.setattr(dl.device("vulkan:0"), "tables", {})
    monkeypatch.setattr(autotune, "sample", lambda work, *_: 0.002 if work.args[0] == "tiles" else 0.003)


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(
        cli, ["tune", "--device", "vulkan:0", *arguments], catch_exceptions=False, env={"COLUMNS": "160"}
    )
    assert result.exit_code == 0
    return result.stdout


def rows(text: str) -> list[list[str]]:
    """The cells of a printed table."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_the_table() -> None:
    text = invoke()
    assert "Tuned: vulkan:0" in text
    first, second = rows(text)
    assert first[:2] == ["gemm", "square"]
    assert first[3:] == ["3.000", "3.000", "0 %", "the same"]
    assert second == [
        "linear",
        "one layer",
        "8x8",
        "3.000",
        "2.000",
        "33 %",
        "tiles",
    ]  # its twin is left out


def test_what_was_found_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    place = dl.device("vulkan:0")
    assert autotune.choose(matvec.SPACE, place, matvec.MatvecProblem(1, 40, 70)) == matvec.WORKGROUPS["8x8"]
    invoke("--kernel", "linear")
    for tables in (place.tables, {}):  # this process, and another one
        monkeypatch.setattr(place, "tables", tables)
        assert autotune.choose(matvec.SPACE, place, matvec.MatvecProblem(2, 50, 102)) == "tiles"
    x, w = (dl.randn(*shape, device="vulkan:0") for shape in ((1, 70), (40, 70)))
    got = dl.nn.functional.linear(x, w).numpy()
    np.testing.assert_allclose(got, x.numpy() @ w.detach().numpy().T, atol=1e-4)


def test_json() -> None:
    found = json.loads(invoke("--json", "--kernel", "linear"))
    assert found["device"] == "vulkan:0"
    assert found["driver"] == dl.device("vulkan:0").info.driver
    [result] = found["results"]
    assert result == {
        "kernel": "linear",
        "problem": "one layer",
        "failure": "",
        "usual": "8x8",
        "chosen": "tiles",
        "seconds": {"8x8": 0.003, "64x4": 0.003, "tiles": 0.002},
        "refused": {},
        "finished": True,
    }


def test_reset() -> None:
    invoke("--kernel", "linear")
    place = dl.device("vulkan:0")
    assert "Forgot 0 results of vulkan:0." in invoke("--reset", "--kernel", "gemm")
    assert "Forgot 1 results of vulkan:0." in invoke("--reset")
    assert autotune.choose(matvec.SPACE, place, matvec.MatvecProblem(1, 40, 70)) == matvec.WORKGROUPS["8x8"]


def test_a_wrong_candidate_is_reported_and_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = matvec.matvec_with_method

    def wrong(way: Any, out: Any, *rest: Any) -> None:
        real(way, out, *rest)
        if way == "tiles":
            out.device.fill(out.storage, 0x3F800000)

    monkeypatch.setattr(matvec, "matvec_with_method", wrong)
    text = invoke("--kernel", "linear")
    assert "linear: tiles is not used on this driver: differs from 8x8 by" in text
    assert rows(text)[0][-1] == "the same"


def test_a_problem_that_does_not_fit_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OutOfMemoryError("[vulkan] nothing left; free tensors")

    monkeypatch.setitem(SPACES, "gemm", dataclasses.replace(SPACES["gemm"], prepare=full))
    text = invoke()
    assert [row[-1] for row in rows(text)] == ["failed", "tiles"]
    assert "gemm, square: [vulkan] nothing left; free tensors" in text
    [failed, _] = json.loads(invoke("--json"))["results"]
    assert failed == {"kernel": "gemm", "problem": "square", "failure": "[vulkan] nothing left; free tensors"}


def test_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_command, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(tune_command.time, "monotonic", iter([0.0, *[1e9] * 99]).__next__)
    monkeypatch.setattr(tune_command.device_records, "alone", contextlib.nullcontext)
    text = invoke("--budget", "1")
    assert {row[-1] for row in rows(text)} == {"no time to tell"}
    assert "Some problems had no time: give a larger --budget." in text


def test_it_says_if_nothing_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_TUNE", "0")
    assert "what was found is kept, and not used" in invoke()


def test_one_process_measures_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_command, "WAIT_SECONDS", 0.0)
    with device_records.alone(1.0), pytest.raises(dl.errors.DeviceError, match=r"^\[tune\] another process"):
        invoke()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "vulkan:99"], ["vulkan:99"]),
        (["--device", "cpu"], ["[tune] cpu has no kernels to choose between", "--device"]),
        (["--kernel", "nothing"], ["nothing", "gemm", "linear"]),
        (["--budget", "0"], ["--budget"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(command: Command, arguments: list[str], words: list[str]) -> None:
    done = command("tune", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr
