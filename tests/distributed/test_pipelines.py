"""Pipelines whose stages are processes compute what one process does, to the last bit."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.distributed import pipeline_program
from tests.distributed.processes import LIMIT, ROOT, launched, run_commands

PROGRAM = str(Path(pipeline_program.__file__))
CASES = [
    {"micro_batches": 4},
    {"micro_batches": 3, "schedule": "gpipe"},
    {"micro_batches": 1},
    {"micro_batches": 16, "checkpoint": True},  # more than rows
]


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.full), 3])
def test_over_gloo(count: int) -> None:
    texts = [json.dumps(case) for case in CASES]
    for ended in run_commands(count, [sys.executable, PROGRAM, *texts], ROOT):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


def test_over_mpi() -> None:
    script = [PROGRAM, "--backend", "mpi", json.dumps(CASES[0])]
    ended = launched(["--backend", "mpi", "-n", "2"], script, LIMIT)
    assert ended.status == 0, ended.output
    assert ended.output.count("complete") == 2


@pytest.mark.vulkan
def test_stages_on_unlike_devices() -> None:
    case = json.dumps({"micro_batches": 4, "devices": ["vulkan:0", "cpu"]})
    for ended in run_commands(2, [sys.executable, PROGRAM, case], ROOT):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


def test_a_process_that_ends() -> None:
    first, last = run_commands(2, [sys.executable, PROGRAM, "dies"], ROOT)
    assert last.status == -signal.SIGKILL
    assert (first.status, "network: [pipeline] rank 0 of 2: another process has ended" in first.output) == (
        0,
        True,
    ), first.output
