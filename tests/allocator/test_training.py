"""What training needs of memory: hardly more than its tensors, nothing new in a long run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psutil
import pytest

import dl4all as dl
from dl4all import nn
from dl4all.runtime.protocols import Buffer
from tests.conftest import run_python
from tests.support.subcases import FULL

WARM_UP, STEPS = 200, 1000 if FULL else 300


def report(device: str) -> None:
    """Train a small network, and print what the driver was asked for and how large the process is."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 10)
    ).to(device)
    random = np.random.default_rng(0)
    optimizer = dl.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    process, backend = psutil.Process(), dl.device(device)._backend
    allocate, asked = backend.allocate, 0

    def counted(nbytes: int, kind: Any = "device") -> Buffer:
        nonlocal asked
        asked += 1
        return allocate(nbytes, kind)

    if device != "cpu":  # whose memory is the host's, without a pool
        backend.allocate = counted  # type: ignore[method-assign]

    def train(steps: int) -> dict[str, int]:
        for _ in range(steps):
            x = dl.tensor(random.normal(size=(4, 1, 8, 8)).astype(np.float32), device=device)
            target = dl.tensor(random.integers(0, 10, 4), device=device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            loss.item()
        stats = dl.memory.stats(device)
        return {
            "asked": asked,
            "misses": stats.misses,
            "requests": stats.hits + stats.misses,
            "allocated": stats.allocated,
            "resident": process.memory_info().rss,
        }

    print(json.dumps([train(WARM_UP), train(STEPS)]))


@pytest.mark.slow
def test_steps_ask_for_nothing(device: str) -> None:
    # A software driver frees and takes a megabyte now and then. With glibc's usual threshold that leaves
    # some holes in its thread's heap at first, which have nothing to do with what is tested.
    ran = run_python(
        f"from tests.allocator.test_training import report; report({device!r})",
        MALLOC_MMAP_THRESHOLD_="262144",
    )
    assert ran.returncode == 0, ran.stderr
    before, after = json.loads(ran.stdout)
    assert (after["asked"], after["misses"]) == (before["asked"], before["misses"])
    assert after["allocated"] == before["allocated"] > 0
    assert after["resident"] <= 1.01 * before["resident"]
    if device != "cpu":
        assert after["requests"] - before["requests"] >= 10 * STEPS
        assert before["asked"] > 0


def test_a_residual_network_reserves_hardly_more_than_it_needs() -> None:
    """Of ResNet-18's tensors: at a size that a device takes minutes for; the null device counts the same."""
    benchmark = pytest.importorskip("benchmarks.memory")
    place = benchmark.null_device()[1]
    *_, last = benchmark.train(place, batch=8, size=224, steps=6)
    assert last["peak"] > 200e6
    assert last["misses"] == 0
    assert last["ratio"] <= 1.10
