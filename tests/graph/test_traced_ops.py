"""Every op in a graph of its own: traced, verified, printed and read back, and sound after all passes."""

from __future__ import annotations

from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, GraphError
from dl4all.graph.ir.parser import parse_graph
from dl4all.graph.ir.text import print_graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.pipeline import run
from dl4all.graph.tracing.trace import trace
from dl4all.ops.core.op import Example, Op
from tests.support.operands import LAYOUTS, operands_of
from tests.support.subcases import each_example


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory: there is none."""


@pytest.mark.sampled(2)
@each_example("layout", LAYOUTS)
def test_a_graph_of_one_op(op: Op[...], case: Example, layout: str) -> None:
    tensors, _ = operands_of(op, case, LAYOUTS[layout], "null:0")

    def call(*given: dl.Tensor) -> Any:
        remaining = iter(given)
        operands = [None if tensor is None else next(remaining) for tensor in tensors]
        with dl.no_grad():
            return op(*operands, **dict(case.arguments))

    try:
        graph = trace(call, *(tensor for tensor in tensors if tensor is not None))
    except ArgumentError as error:
        pytest.skip(f"it cannot be traced: {error}")
    verify(graph)
    text = print_graph(graph)
    try:
        assert parse_graph(text) == graph
    except GraphError:
        assert "host " in text
    smaller = run(graph, verifies=True)
    assert [output.shape for output in smaller.outputs] == [output.shape for output in graph.outputs]
