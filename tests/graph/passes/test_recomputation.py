"""Values that are computed again: when they are, when they must not, and that nothing changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion.elementwise_fusion import elementwise_fusion
from dl4all.graph.passes.recomputation import recomputation
from dl4all.graph.tracing.trace import trace
from tests.conftest import need
from tests.graph.programs import random_program
from tests.graph.replay import replay, same_bits
from tests.support.operands import generator, numbers


def graphs(function: Callable[..., Any], *inputs: dl.Tensor) -> tuple[Graph, Graph]:
    """A function's fused graph before and after the pass."""
    graph = elementwise_fusion(trace(function, *inputs))
    result = recomputation(graph)
    verify(result)
    return graph, result


def scaled_around(x: dl.Tensor) -> dl.Tensor:
    """Two readers of one product, and a sum that must run between them."""
    y = x * 2
    return y / (y + 1).abs().sum()


def test_a_value_whose_readers_are_apart_is_computed_twice() -> None:
    graph, result = graphs(scaled_around, dl.zeros(64, 64, device="null:0"))
    assert [node.name for node in graph.nodes] == ["fused_mul_add_abs", "sum", "true_divide"]
    assert [node.name for node in result.nodes] == ["fused_mul_add_abs", "sum", "fused_mul_true_divide"]
    assert len(result.buffers) == len(graph.buffers) - 1


def test_what_takes_long_is_not_computed_twice() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        y = x.exp()
        return y / (y + 1).abs().sum()

    graph, result = graphs(function, dl.zeros(64, 64, device="null:0"))
    assert result == graph


def test_operands_that_have_changed_are_not_read_again() -> None:
    def function(x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        y = x * 2
        total = (y + 1).abs().sum()
        x.copy_(total.expand(64, 64))
        return y / total, x

    graph, result = graphs(function, dl.zeros(64, 64, device="null:0"))
    assert result == graph


def test_results_and_what_others_read_stay() -> None:
    def function(x: dl.Tensor) -> tuple[dl.Tensor, ...]:
        y, z = x * 2, x * 3
        total = ((y + 1).abs() + z).sum()
        return y / total, y, z.sum() + z / total

    graph, result = graphs(function, dl.zeros(64, 64, device="null:0"))
    assert {operand.value for operand in graph.outputs} == {operand.value for operand in result.outputs}
    assert [node.name for node in result.nodes].count("sum") == 2


@pytest.mark.vulkan
def test_results() -> None:
    need("vulkan:0")
    x = dl.tensor(numbers(generator("recomputation"), (64, 64)), device="vulkan:0")
    traced = trace(scaled_around, x)
    _, result = graphs(scaled_around, x)
    same_bits(replay(result, x), replay(traced, x))


@pytest.mark.sampled(3)
@pytest.mark.vulkan
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    need("vulkan:0")
    function, inputs = random_program(random.Random(1000 + seed), "vulkan:0", 30)
    graph = trace(function, *inputs)
    result = recomputation(elementwise_fusion(graph))
    verify(result)
    same_bits(replay(result, *inputs), replay(graph, *inputs))
