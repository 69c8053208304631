"""Winograd's convolution in one launch less: what it computes, and of which graphs it leaves everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import BoundLaunch, Graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion.epilogues import epilogues
from dl4all.graph.passes.fusion.winograd_repairs import winograd_repairs
from dl4all.graph.tracing.trace import trace
from dl4all.ops.conv import winograd
from dl4all.ops.conv.algorithms import forced
from tests.support.device_traces import need_bindings, traced_on_device

F = dl.nn.functional


def _shaders(graph: Graph) -> list[str]:
    commands = [command for node in graph.nodes for command in node.commands]
    return [c.launch.shader.path.split("/")[1] for c in commands if isinstance(c, BoundLaunch)]


@pytest.mark.vulkan
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("direction", ["forward", "input_gradient"])
def test_the_same_bits(direction: str, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tiles with and without what is not finite, at edges, and of several portions."""
    need_bindings(8)
    monkeypatch.setattr(winograd, "TILE_BYTES", 2**14)
    rng = np.random.default_rng(tile)
    x, w = rng.standard_normal((5, 5, 13, 11), np.float32), rng.standard_normal((7, 5, 3, 3), np.float32)
    bias, g = rng.standard_normal(7, np.float32), rng.standard_normal((5, 7, 12, 10), np.float32)
    for array in (x, g):
        array[0, 1, 6, 7] = np.inf
        array[1, 2, 0, 0] = np.nan
        array[4, :, -1, -1] = -np.inf

    def forward(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        return F.conv2d(x, w, bias, padding=(1, 1))[:, :, :12, :10].contiguous() + residual

    def input_gradient(g: Any, w: Any) -> Any:
        return dl.ops.conv_input(g, w, input_size=(12, 10), padding=1) * 2.0

    with forced(f"winograd{tile}"):
        if direction == "forward":
            traced = traced_on_device(forward, x, w, bias, g)
        else:
            traced = traced_on_device(input_gradient, g, w)
    merged = winograd_repairs(traced.graph)
    verify(merged)
    before, after = _shaders(traced.graph), _shaders(merged)
    assert before.count("winograd_repair.comp") > 1
    assert after == [shader for shader in before if shader != "winograd_repair.comp"]
    np.testing.assert_array_equal(traced._replace(graph=merged).outcome, traced.result)
    finished = epilogues(merged)
    verify(finished)
    np.testing.assert_array_equal(traced._replace(graph=finished).outcome, traced.result)


@pytest.mark.vulkan
def test_epilogues_of_repaired_tiles() -> None:
    need_bindings(8)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 5, 9, 10), np.float32), rng.standard_normal((7, 5, 3, 3), np.float32)
    residual = rng.standard_normal((2, 7, 9, 10), np.float32)
    x[0, 1, 5, 6] = np.inf

    def function(x: Any, w: Any, residual: Any) -> Any:
        return (F.conv2d(x, w, padding=1) + residual).clamp(-1.0, 2.0).sqrt()

    with forced("winograd4"):
        traced = traced_on_device(function, x, w, residual)
    finished = epilogues(winograd_repairs(traced.graph))
    verify(finished)
    assert len(finished.nodes) == 1
    assert _shaders(finished)[-1] == "winograd_result.comp"
    np.testing.assert_array_equal(traced._replace(graph=finished).outcome, traced.result)


def test_a_device_with_four_bindings_keeps_both() -> None:
    x, w = (dl.ones(*shape, device="null:0") for shape in ((1, 3, 8, 8), (4, 3, 3, 3)))
    with forced("winograd4"):
        graph = trace(lambda x, w: F.conv2d(x, w), x, w)
    assert "winograd_repair.comp" in _shaders(graph)
    assert winograd_repairs(graph) is graph
