"""Programs run where they are estimated to be faster, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.op_codes import choice
from dl4all.graph.op_codes.assembler import parse
from dl4all.graph.op_codes.choice import with_programs
from dl4all.graph.op_codes.costs import program_seconds
from dl4all.graph.op_codes.interpreter import VARIANTS
from dl4all.graph.passes import pipeline
from dl4all.graph.tracing.trace import trace
from dl4all.nn import functional as F
from dl4all.runtime.device_info import DeviceInfo
from tests.conftest import need

PROCESSOR = VARIANTS[2]


def _training(device: str, *sizes: int) -> tuple[Callable[..., Any], dl.Tensor, dl.Tensor]:
    dl.manual_seed(0)
    batch, inputs, hidden, outputs = sizes
    model = dl.nn.Sequential(dl.nn.Linear(inputs, hidden), dl.nn.Tanh(), dl.nn.Linear(hidden, outputs))
    optimizer = dl.optim.Adam(model.to(device).parameters(), lr=0.05)

    def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    x, y = (dl.tensor(rng.random((batch, n), np.float32), device=device) for n in (inputs, outputs))
    return step, x, y


def _graph(device: str, *sizes: int) -> Graph:
    step, x, y = _training(device, *sizes)
    step(x, y)
    return trace(step, x, y)


def _software() -> DeviceInfo:
    """A software driver that binds as much as others do."""
    info = dl.device("null:0").info
    return replace(info, type="software", limits=replace(info.limits, storage_buffers=8))


def test_programs_replace_many_small_kernels_of_software_drivers() -> None:
    traced, info = _graph("null:0", 1, 2, 4, 1), _software()
    chosen = with_programs(traced, traced, info)
    assert [node.name for node in chosen.nodes] == ["op codes"]
    assert with_programs(traced, traced, replace(info, type="discrete")) is traced


def test_large_tensors_and_few_kernels_stay() -> None:
    info = _software()
    large = _graph("null:0", 64, 64, 64, 64)
    assert with_programs(large, large, info) is large
    few = trace(lambda x: (x.sum(0) * 2).tanh().mean(), dl.ones(300, 100, device="null:0"))
    assert with_programs(few, few, info) is few


def test_estimates_grow_with_what_there_is_to_do() -> None:
    def seconds(text: str) -> float:
        return program_seconds(parse(text), PROCESSOR)

    flat = seconds("r0: @0 [64]\nadd r0, r0, #1.0")
    assert 0 < flat < seconds("r0: @0 [640]\nadd r0, r0, #1.0")
    assert flat < seconds("r0: @0 [64]\ntanh r0, r0")
    assert flat < seconds("r0: @0 [8, 8]\nr1: @64 [8]\nadd r0, r0, r1")
    product = "r0: @0 [8, {0}]\nr1: @0 [{0}, 8]\nr2: @999 [8, 8]\nmatmul r2, r0, r1"
    assert seconds(product.format(3)) < seconds(product.format(30))


@pytest.mark.vulkan
def test_a_compiled_training_with_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of each step is that of immediate mode: Adam's numbers are new in each."""
    need("vulkan:0")
    for name in ("is_measured", "is_worthwhile"):
        monkeypatch.setattr(choice, name, lambda *_: True)
    step, x, y = _training("vulkan:0", 5, 3, 7, 2)
    expected = [step(x, y).item() for _ in range(12)]
    step, x, y = _training("vulkan:0", 5, 3, 7, 2)
    compiled = dl.compile(step, mode="reduce-overhead")
    losses = [compiled(x, y).item() for _ in range(12)]
    np.testing.assert_allclose(losses, expected, 1e-5)
    [[found]] = compiled.specializations.values()
    assert [node.name for node in found.graph.nodes] == ["op codes"]


def test_the_passes_that_leave_ops() -> None:
    assert set(choice.SINGLE_OPS) <= set(pipeline.NAMES)
