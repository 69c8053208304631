"""Elementwise results that overwrite operands: when they do, when they must not, and that nothing changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import dl4all as dl
from dl4all.allocator.planner import lower_bound
from dl4all.graph.ir.graph import Graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.fusion.elementwise_fusion import elementwise_fusion
from dl4all.graph.passes.in_place import in_place
from dl4all.graph.run.executable import lifetimes
from dl4all.graph.tracing.trace import trace
from tests.conftest import need
from tests.graph.programs import random_program
from tests.graph.replay import replay, same_bits


def graphs(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Graph, Graph]:
    """A function's graph before and after the pass."""
    graph = trace(function, *(dl.zeros(*shape, device="null:0") for shape in shapes))
    result = in_place(graph)
    verify(result)
    return graph, result


def memory(graph: Graph) -> int:
    """The bytes of temporaries that are alive at once."""
    return lower_bound(list(lifetimes(graph, graph.nodes).values()))


def temporaries(graph: Graph) -> int:
    return sum(buffer.kind == "temporary" for buffer in graph.buffers.values())


def test_a_chain_stays_in_one_buffer() -> None:
    graph, result = graphs(lambda x: (x.sum(0, keepdim=True) * 2).relu().sqrt().sum(), (8, 16))
    assert (temporaries(graph), temporaries(result)) == (4, 1)
    assert [str(value) for node in result.nodes[:4] for value in node.writes] == [
        "%1",
        "%1.2",
        "%1.3",
        "%1.4",
    ]
    assert [node.name for node in result.nodes] == [node.name for node in graph.nodes]


def test_operands_that_are_still_needed_stay() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        y = x.cumsum(0)
        z = y * 2
        return y.sum() + z.sum()

    graph, result = graphs(function, (8, 16))
    assert result == graph


def test_inputs_parameters_and_results_stay() -> None:
    graph, result = graphs(lambda x: ((x * 2), (x + 1).relu()), (8, 16))
    assert {b.number for b in result.buffers.values() if b.kind != "temporary"} == {
        b.number for b in graph.buffers.values() if b.kind != "temporary"
    }
    assert result == graph


def test_what_is_kept_stays() -> None:
    graph = trace(lambda x: (x.cumsum(0) * 2).sum(), dl.zeros(8, 16, device="null:0"))
    assert in_place(graph) != graph
    kept = replace(graph, kept=graph.kept | {*graph.nodes[0].writes})
    assert in_place(kept) == kept


def test_operands_of_another_layout_stay() -> None:
    for function in (
        lambda x: ((x * 2).t() + 1).sum(),
        lambda x: ((x * 2)[:1] + x).sum(),
        lambda x: ((x * 2) > 1).sum(),
    ):
        graph, result = graphs(function, (8, 8))
        assert result == graph


def test_an_operand_is_taken_once() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        y = x.cumsum(0)
        a, b = y * 2, y + 1
        return a.sum() + b.sum()

    _, result = graphs(function, (8, 16))
    result = in_place(elementwise_fusion(trace(function, dl.zeros(8, 16, device="null:0"))))
    verify(result)
    node = next(node for node in result.nodes if node.parts)
    assert len({value.buffer for value in node.writes}) == 2
    assert node.reads[0].buffer in {value.buffer for value in node.writes}
    assert node.parts[0].reads == node.reads


@pytest.mark.vulkan
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int, fuse: bool) -> None:
    need("vulkan:0")
    function, inputs = random_program(random.Random(seed), "vulkan:0", 25)
    graph = trace(function, *inputs)
    before = elementwise_fusion(graph) if fuse else graph
    result = in_place(before)
    verify(result)
    assert memory(result) <= memory(before)
    same_bits(replay(result, *inputs), replay(graph, *inputs))
