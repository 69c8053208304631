"""Many small ops from eight threads to three devices: nothing is lost, reordered or kept."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

import dl4all as dl
from benchmarks.scheduler_stress import DEVICES, stress
from dl4all.scheduler.cost.simulation import simulated_device
from tests.conftest import need

MIB = 1 << 20


def check(devices: tuple[str | dl.Device, ...], tasks: int, limit: int = 32) -> None:
    report = stress(devices, threads=8, tasks=tasks, limit=limit)
    assert report.tasks == tasks
    assert report.right == tasks
    assert report.reordered == 0
    assert report.longest <= limit + 1  # with the one that runs
    assert report.late_bytes - report.early_bytes < 16 * MIB


@pytest.mark.vulkan
@pytest.mark.usefixtures("deadline")
def test_three_devices() -> None:
    need("vulkan:0")
    check(DEVICES, 4000)


@pytest.mark.usefixtures("deadline")
def test_objects_do_not_pile_up() -> None:
    """Three times as many tasks leave as much behind; what other threads keep for a moment is no growth."""
    devices = ("cpu", "cpu#1", simulated_device())
    check(devices, 800)
    growth = []
    for _ in range(3):
        kept = [_kept_by(devices, tasks) for tasks in (800, 2400)]
        growth.append(kept[1] - kept[0])
        if growth[-1] < 50_000:
            return
    raise AssertionError(f"bytes that 1,600 more tasks left behind, three times: {growth}")


def _kept_by(devices: tuple[str | dl.Device, ...], tasks: int) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        stress(devices, threads=8, tasks=tasks, limit=32)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.full
@pytest.mark.vulkan
def test_a_hundred_thousand() -> None:
    need("vulkan:0")
    check(DEVICES, 100_000, limit=1024)
