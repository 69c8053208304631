"""What nobody sees is left out; what changes memory outside stays."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.parser import parse_graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.dead_code import dead_code
from tests.support.pass_results import SPECIAL, check_pass


@pytest.mark.vulkan
def test_unused_results_go_with_what_only_they_need() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        (x.exp() + x.abs()).sum()
        return x.abs().neg()

    before, after = check_pass(dead_code, function, SPECIAL)
    assert before == ["exp", "abs", "add", "sum", "abs", "neg"]
    assert after == ["abs", "neg"]


@pytest.mark.vulkan
def test_writes_into_an_argument_stay() -> None:
    def function(x: dl.Tensor) -> dl.Tensor:
        x.add_(1.0)
        y = x.exp()
        y.mul_(2.0)
        return x

    before, after = check_pass(dead_code, function, np.ones(5, np.float32))
    assert len(after) < len(before)
    assert after == before[: len(after)]


CHAIN = """graph cpu
buffer @0: captured, 24 bytes
buffer @1: temporary, 24 bytes
buffer @2: temporary, 24 bytes
buffer @3: output, 24 bytes
buffer @4: temporary, 24 bytes
first<>() writes %1
second<>() reads %1 writes %1.2
scratch<>() writes %2, %4
step<>() reads %0.0, %2 writes %0
last<>() reads %1.2 writes %3
after<>() reads %1.2 writes %1.3
return %3: float32[2, 3]
keep %0, %3
"""


def test_versions_of_a_buffer_are_looked_at_one_by_one() -> None:
    graph = parse_graph(CHAIN)
    verify(graph)
    after = dead_code(graph)
    verify(after)
    assert [node.name for node in after.nodes] == ["first", "second", "scratch", "step", "last"]
    assert after.buffers == graph.buffers


def test_without_dead_code_it_is_the_same_graph() -> None:
    graph = dead_code(parse_graph(CHAIN))
    assert dead_code(graph) is graph


def test_buffers_of_dead_nodes_go() -> None:
    graph = dead_code(parse_graph(CHAIN.replace("step<>() reads %0.0, %2", "step<>() reads %0.0")))
    verify(graph)
    assert sorted(graph.buffers) == [0, 1, 3]
