"""Fusion of elementwise nodes: what becomes one kernel, what must not, and that results stay bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import BackendMissingError
from dl4all.graph.codegen.elementwise_kernel import combine
from dl4all.graph.ir.graph import Graph
from dl4all.graph.passes.fusion.elementwise_fusion import LAUNCH_BYTES, cost, elementwise_fusion, reachability
from dl4all.graph.tracing.trace import trace
from dl4all.runtime import spirv
from dl4all.runtime.spirv import compilers
from tests.conftest import need
from tests.graph.programs import random_program
from tests.graph.replay import dispatches, replay, same_bits
from tests.support.operands import generator, numbers


def tensors(*shapes: tuple[int, ...], device: str = "null:0") -> list[dl.Tensor]:
    rng = generator("fusion", shapes)
    return [dl.tensor(numbers(rng, shape), device=device) for shape in shapes]


def names(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The nodes of a function's graph after the pass."""
    return [node.name for node in elementwise_fusion(trace(function, *tensors(*shapes))).nodes]


def test_a_chain_is_one_kernel() -> None:
    assert names(lambda x, y: ((x * 2 + y).relu_() - x).tanh(), (8, 16), (16,)) == [
        "fused_mul_add_relu_sub_tanh"
    ]


def test_inner_values_vanish_and_others_are_stored() -> None:
    [x] = tensors((8, 16))
    graph = trace(lambda x: (lambda y: (y, (y * 3 + 1).relu()))(x * 2), x)
    result = elementwise_fusion(graph)
    [node] = result.nodes
    assert [part.name for part in node.parts] == ["mul", "mul", "add", "relu"]
    assert node.writes == tuple(operand.value for operand in graph.outputs)
    assert len(result.buffers) == 3
    assert result.kept == graph.kept


def test_a_node_that_must_run_between_keeps_them_apart() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        y = x * 2 + 1
        return y * y.sum() + 3

    assert names(function, (8, 16)) == ["fused_mul_add", "sum", "fused_mul_add"]


def test_branches_around_a_node_that_needs_one_of_them() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        y, z = x * 2, x * 3
        return y.sum() + (z + x.sum()) * y

    graph = trace(function, *tensors((8, 16)))
    result = elementwise_fusion(graph)
    assert dispatches(result) < dispatches(graph)
    before, _ = reachability(result.nodes)
    assert all(not needed >> position for position, needed in enumerate(before))


def test_groups_do_not_wait_for_each_other() -> None:
    def function(x: dl.Tensor, y: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        a, b = x * 2, y * 3
        of_a, of_b = a.sum(), b.sum()
        return a * of_b, b * of_a  # each pair could be one kernel, but not both pairs

    found = names(function, (8, 16), (8, 16))
    assert sorted(found) == ["fused_mul_mul", "mul", "mul", "sum", "sum"]


def test_siblings_read_their_operand_once() -> None:
    assert names(lambda x: (x.relu(), x.sigmoid()), (8, 16)) == ["fused_relu_sigmoid"]


def test_changes_in_place_end_a_group() -> None:
    def function(x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
        y = x * 2
        total = y.sum()
        y.add_(1).relu_()
        return y, total

    graph = trace(function, *tensors((8, 16)))
    result = elementwise_fusion(graph)
    assert [node.name for node in result.nodes] == ["mul", "sum", "fused_add_relu"]
    assert result.nodes[2].reads == result.nodes[0].writes


def test_transposed_operands_keep_their_kernels() -> None:
    assert names(lambda x: x.t().clone() * 2, (8, 16)) == ["clone", "mul"]


def test_buffers_are_limited() -> None:
    def function(*operands: dl.Tensor) -> dl.Tensor:
        total = operands[0]
        for operand in operands[1:]:
            total = total + operand
        return total

    graph = trace(function, *tensors(*[(8, 16)] * 12))
    limit = min(8, dl.device("null:0").info.limits.storage_buffers)
    result = elementwise_fusion(graph)
    assert all(len(command.bindings) <= limit for node in result.nodes for command in node.commands)  # type: ignore[union-attr]
    assert len(result.nodes) < len(graph.nodes)


def test_the_pass_does_nothing_twice() -> None:
    once = elementwise_fusion(trace(lambda x: (x * 2).relu().sum(), *tensors((8, 16))))
    assert elementwise_fusion(once) == once


def test_without_a_compiler_nodes_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pick() -> compilers.Compiler:
        raise BackendMissingError("no compiler")

    graph = trace(lambda x: ((x * 2).relu() + x.sum()).tanh(), *tensors((8, 16)))
    monkeypatch.setenv("DL4ALL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(spirv, "_loaded", {})
    monkeypatch.setattr(compilers, "pick", pick)
    assert set(elementwise_fusion(graph).nodes) == set(graph.nodes)


def test_cost_counts_launches_and_bytes() -> None:
    [x, y] = tensors((8, 16), (7, 17))
    whole = trace(lambda x: (x * 2).relu(), x)
    kernel = combine(whole.nodes, {whole.outputs[0].value})
    parts = [combine([node], set(node.writes)) for node in whole.nodes]
    odd = trace(lambda y: (y * 2).relu(), y)
    one_by_one = combine(odd.nodes, {odd.outputs[0].value})
    assert kernel is not None
    assert one_by_one is not None
    assert cost([kernel]) == LAUNCH_BYTES + 2 * 4 * 8 * 16
    assert cost([part for part in parts if part]) == 2 * cost([kernel])
    assert cost([one_by_one]) > cost([kernel])


@pytest.mark.vulkan
@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    need("vulkan:0")
    function, inputs = random_program(random.Random(seed), "vulkan:0", 25)
    graph = trace(function, *inputs)
    result: Graph = elementwise_fusion(graph)
    assert len(result.nodes) < len(graph.nodes)
    same_bits(replay(result, *inputs), replay(graph, *inputs))
