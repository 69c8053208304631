"""Commands that do what was done already are left out, and only those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Binding, BoundLaunch, Graph, GraphBuffer, Node, Operand, Value, VaryingWord
from dl4all.graph.ir.verifier import verify
from dl4all.graph.passes.common_commands import MOST_BYTES, common_commands
from dl4all.ops.core.kernels.launch import shader
from dl4all.scheduler.device.programs import Launch
from tests.support.graph_execution import Execution, traced

FOLD = Launch(shader("normalization/batch_norm_fold.comp", WEIGHT=0), (1, 1, 1))
APPLY = Launch(shader("normalization/batch_norm.comp", BIAS=0, FOURS=0), (1, 1, 1))


def launch(code: Launch, reads: tuple[int, ...], writes: tuple[int, ...], **options: Any) -> BoundLaunch:
    bindings = tuple(Binding(n, 0, 8) for n in (*reads, *writes))
    return BoundLaunch(code, bindings, (*(False for _ in reads), *(True for _ in writes)), **options)


def node(number: int, source: int, scratch: int, result: int, **options: Any) -> Node:
    """A node of two commands, the first of which writes scratch memory."""
    return Node(
        f"node {number}",
        reads=(Value(source, 0),),
        writes=(Value(scratch, 1), Value(result, 1)),
        commands=(launch(FOLD, (source,), (scratch,), **options), launch(APPLY, (scratch,), (result,))),
    )


def graph(*nodes: Node, nbytes: int = 8) -> Graph:
    kinds: Any = {0: "input", 1: "captured", 8: "output", 9: "output"}
    buffers = {n: GraphBuffer(n, nbytes, kinds.get(n, "temporary")) for n in range(10)}
    outputs = tuple(Operand(Value(n, 1), (1,), "float32", (1,)) for n in (8, 9))
    return Graph("null:0", buffers, nodes, (0,), outputs)


def test_what_was_computed_is_used_again() -> None:
    first, second = node(1, 0, 2, 8), node(2, 0, 3, 9)
    smaller = common_commands(graph(first, second))
    assert smaller.nodes[0] == first
    assert smaller.nodes[1].commands == (launch(APPLY, (2,), (9,)),)
    assert smaller.nodes[1].reads == (Value(0, 0), Value(2, 1))
    assert smaller.nodes[1].writes == (Value(9, 1),)
    assert 3 not in smaller.buffers


def test_chains_are_used_again() -> None:
    def chain(scratch: int, result: int) -> Node:
        return Node(
            "chain",
            reads=(Value(0, 0),),
            writes=(Value(scratch, 1), Value(scratch + 1, 1), Value(result, 1)),
            commands=(
                launch(FOLD, (0,), (scratch,)),
                launch(APPLY, (scratch,), (scratch + 1,)),
                launch(FOLD, (scratch + 1, 1), (result,)),
            ),
        )

    smaller = common_commands(graph(chain(2, 8), chain(4, 9)))
    assert smaller.nodes[1].commands == (launch(FOLD, (3, 1), (9,)),)


STAYING = {
    "other operands": (node(1, 0, 2, 8), node(2, 1, 3, 9)),
    "memory that has changed": (
        node(1, 0, 2, 8),
        Node("write", writes=(Value(0, 1),), commands=(launch(APPLY, (1,), (0,)),)),
        node(2, 0, 3, 9),
    ),
    "numbers that vary": (
        node(1, 0, 2, 8, varying=(VaryingWord(0, 0, 0),)),
        node(2, 0, 3, 9, varying=(VaryingWord(0, 0, 0),)),
    ),
    "scratch that somebody else reads": (
        node(1, 0, 2, 8),
        node(2, 0, 3, 9),
        Node(
            "read",
            reads=(Value(2, 1), Value(3, 1)),
            writes=(Value(7, 1),),
            commands=(launch(APPLY, (2, 3), (7,)),),
        ),
    ),
    "scratch that is written twice": (
        Node(
            "twice",
            reads=(Value(0, 0),),
            writes=(Value(2, 1), Value(8, 1)),
            commands=(
                launch(FOLD, (0,), (2,)),
                launch(APPLY, (1,), (2,)),
                launch(APPLY, (2,), (8,)),
            ),
        ),
        node(2, 0, 3, 9),
    ),
}


@pytest.mark.parametrize("case", STAYING)
def test_what_stays(case: str) -> None:
    whole = graph(*STAYING[case])
    assert common_commands(whole) is whole


def test_large_scratch_is_not_kept() -> None:
    whole = graph(node(1, 0, 2, 8), node(2, 0, 3, 9), nbytes=MOST_BYTES + 1)
    assert common_commands(whole) is whole


def test_the_gradients_of_batch_normalisation_share_its_factors() -> None:
    layer = dl.nn.BatchNorm2d(5).to("vulkan:0")
    x = dl.randn(3, 5, 7, 7, device="vulkan:0").requires_grad_()

    def step(x: dl.Tensor) -> dl.Tensor:
        loss: dl.Tensor = (layer(x) * x).sum()
        loss.backward()
        return loss.detach()

    whole, contents = traced(step, x)
    smaller = common_commands(whole)
    verify(smaller)
    count = sum(len(node.commands) for node in whole.nodes)
    assert sum(len(node.commands) for node in smaller.nodes) == count - 1
    before, after = Execution(whole, contents), Execution(smaller, contents)
    before.run()
    after.run()
    for value in whole.kept:
        np.testing.assert_array_equal(after.contents(value.buffer), before.contents(value.buffer))
