"""Copies of whole buffers as clones."""

from __future__ import annotations

import pytest

import dl4all as dl
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion.elementwise_fusion import elementwise_fusion
from dl4all.graph.passes.whole_copies import whole_copies
from dl4all.graph.tracing.trace import trace
from tests.conftest import need
from tests.graph.replay import replay, same_bits
from tests.support.operands import generator, numbers


def average(mean: dl.Tensor, x: dl.Tensor) -> dl.Tensor:
    """A running mean."""
    mean.copy_(mean * 0.9 + x * 0.1)
    return mean


def test_a_copy_is_fused_with_what_computes_its_source() -> None:
    graph = trace(average, dl.zeros(6, 4, device="null:0"), dl.zeros(6, 4, device="null:0"))
    result = whole_copies(graph)
    verify(result)
    assert [node.op for node in graph.nodes][-1] == ""
    assert [node.op for node in result.nodes][-1] == "clone"
    assert result.nodes[-1].commands == graph.nodes[-1].commands
    [node] = elementwise_fusion(result).nodes
    assert node.name == "fused_mul_mul_add_clone"


def test_parts_and_views_stay_copies() -> None:
    def part(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        x[1:].copy_(y[1:] * 2)
        x.copy_(y.t())
        return x

    graph = trace(part, dl.zeros(4, 4, device="null:0"), dl.zeros(4, 4, device="null:0"))
    assert whole_copies(graph) == graph


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(6, 4), (5,)])
def test_results(shape: tuple[int, ...]) -> None:
    need("vulkan:0")
    rng = generator("copies", shape)
    inputs = [dl.tensor(numbers(rng, shape), device="vulkan:0") for _ in range(2)]
    graph = trace(average, *(tensor.clone() for tensor in inputs))
    result = elementwise_fusion(whole_copies(graph))
    assert len(result.nodes) == 1
    same_bits(replay(result, *inputs), replay(graph, *inputs))
