"""Training by several processes equals that by one, and its replicas equal each other to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.distributed.processes import run_mpi, run_ranks
from tests.distributed.programs import train

TOLERANCE = 1e-6
CASES = ["even:cpu", "uneven:cpu", "odd:cpu", "without_rows:cpu", "even:cpu,cpu#1"]


def check(folder: Path, count: int, cases: list[str]) -> None:
    expected = train("cpu", lambda net: net)
    assert np.ptp(expected) > 1
    for number, case in enumerate(cases):
        found = [np.load(folder / f"{number}-{rank}.npy") for rank in range(count)]
        for other in found[1:]:
            assert np.array_equal(found[0], other), case
        distance = np.linalg.norm(found[0] - expected) / np.linalg.norm(expected)
        assert distance <= TOLERANCE, (case, distance)


def test_two_processes_over_gloo(tmp_path: Path) -> None:
    for ended in run_ranks(2, "data_parallel", str(tmp_path), *CASES):
        assert ended.status == 0, ended.output
    check(tmp_path, 2, CASES)


@pytest.mark.vulkan
def test_two_processes_on_devices(tmp_path: Path) -> None:
    cases = ["even:vulkan:0", "uneven:vulkan:0,cpu"]
    for ended in run_ranks(2, "data_parallel", str(tmp_path), *cases):
        assert ended.status == 0, ended.output
    check(tmp_path, 2, cases)


@pytest.mark.full
def test_four_processes_over_gloo(tmp_path: Path) -> None:
    cases = ["uneven:cpu", "without_rows:cpu"]
    for ended in run_ranks(4, "data_parallel", str(tmp_path), *cases):
        assert ended.status == 0, ended.output
    check(tmp_path, 4, cases)


def test_two_processes_over_mpi(tmp_path: Path) -> None:
    cases = ["uneven:cpu", "without_rows:cpu,cpu#1"]
    ended = run_mpi(2, "data_parallel", str(tmp_path), *cases)
    assert ended.status == 0, ended.output
    check(tmp_path, 2, cases)


def test_gradients_kept_back_and_hooks() -> None:
    for ended in run_ranks(2, "accumulated"):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


def test_a_lost_device_moves_no_other_process(tmp_path: Path) -> None:
    """The pass is computed again by the devices that are left, with what the network has brought already.

    Wherever it is lost: before and after layers exchange, and before and after the first buckets leave.
    """
    failures = ["forward:40", *(f"backward:{after}" for after in range(108, 124, 2))]
    for ended in run_ranks(2, "loses_a_device", str(tmp_path), *failures):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output
    check(tmp_path, 2, failures)


def test_buffers_and_orders_are_those_of_the_first_process() -> None:
    for ended in run_ranks(2, "shares"):
        assert (ended.status, "complete" in ended.output) == (0, True), ended.output


@pytest.mark.parametrize("stage", ["forward", "backward", "update"])
@pytest.mark.sampled(3)
def test_a_killed_process_is_noticed(stage: str) -> None:
    """At once, and it is no device's failure: the program looks whether one was retired."""
    first, second = run_ranks(2, "dies", stage, "kill")
    assert second.status == -9
    assert first.status == 3, first.output
    assert "another process has ended" in first.output
    assert first.seconds < 60


def test_a_stopped_process_is_given_up() -> None:
    first, second = run_ranks(2, "dies", "backward", "stop", stopped=1)
    assert second.status == -9
    assert first.status == 3, first.output
    assert "did not answer within 8 seconds" in first.output
