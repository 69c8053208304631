"""What depends on captured memory alone runs once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.graph.ir.graph import (
    Binding,
    BoundFill,
    BoundLaunch,
    Graph,
    GraphBuffer,
    HostCall,
    Node,
    Operand,
    Value,
    VaryingWord,
    bindings_of,
)
from dl4all.graph.passes.preamble import fixed_values, preamble, split
from dl4all.graph.tracing.recapture import Draft
from dl4all.ops.conv import algorithms
from dl4all.ops.core.kernels.launch import shader
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.scheduler.device.programs import Launch
from tests.support.graph_execution import Execution

RNG = np.random.default_rng(18)
ADD = Launch(shader("elementwise/add.comp"), (1, 1, 1))


def launch(reads: tuple[int, ...], writes: tuple[int, ...], **options: Any) -> BoundLaunch:
    bindings = tuple(Binding(n, 0, 4) for n in (*reads, *writes))
    return BoundLaunch(ADD, bindings, (*(False for _ in reads), *(True for _ in writes)), **options)


def node(name: str, *commands: Any, version: int = 1) -> Node:
    """A node whose values are those of its commands' buffers: reads of version 1, or 0 of the first three."""
    reads, writes = set[int](), set[int]()
    for command in commands:
        flags = (True,) if isinstance(command, BoundFill) else command.writes
        for binding, written in zip(bindings_of(command), flags, strict=True):
            (writes if written else reads).add(binding.buffer)
    values = tuple(Value(n, min(n // 3, 1)) for n in sorted(reads - writes))
    return Node(
        name, reads=values, writes=tuple(Value(n, version) for n in sorted(writes)), commands=commands
    )


def graph(*nodes: Node, kept: frozenset[Value] = frozenset()) -> Graph:
    """Buffers: 0 an input, 1 and 2 captured, temporaries, and 9, which is the output."""
    kinds: Any = {0: "input", 1: "captured", 2: "constant", 9: "output"}
    buffers = {n: GraphBuffer(n, 4, kinds.get(n, "temporary")) for n in range(10)}
    output = Operand(Value(9, 1), (1,), "float32", (1,))
    return Graph("cpu", buffers, nodes, (0,), (output,), kept=kept)


def names(nodes: tuple[Node, ...]) -> list[str]:
    return [node.name for node in nodes]


def test_what_follows_from_captured_memory_moves() -> None:
    whole = graph(
        node("of both", launch((1, 2), (3,))),
        node("of input", launch((0, 3), (4,))),
        node("of derived", launch((3,), (5,))),
        node("result", launch((4, 5), (9,))),
    )
    moved = preamble(whole)
    assert names(moved.preamble) == ["of both", "of derived"]
    assert names(moved.nodes) == ["of input", "result"]
    assert {n for n, buffer in moved.buffers.items() if buffer.kind == "derived"} == {3, 5}
    assert fixed_values(whole) == {Value(1, 0), Value(2, 0), Value(3, 1), Value(5, 1)}
    assert preamble(moved) == moved


def test_what_only_the_preamble_uses_stays_a_temporary() -> None:
    moved = preamble(
        graph(
            node("first", launch((1,), (3,))),
            node("second", launch((3,), (4,))),
            node("result", launch((0, 4), (9,))),
        )
    )
    assert {n: moved.buffers[n].kind for n in (3, 4)} == {3: "temporary", 4: "derived"}


def test_part_of_a_node_moves() -> None:
    convolution = node("conv", launch((1,), (3,)), launch((0,), (4,)), launch((3, 4), (9,)))
    preamble, rest = split(graph(convolution))
    assert names(preamble) == ["conv of captured memory"]
    assert preamble[0].commands == convolution.commands[:1]
    assert preamble[0].reads == (Value(1, 0),)
    assert preamble[0].writes == (Value(3, 1),)
    (after,) = rest.nodes
    assert after.commands == convolution.commands[1:]
    assert after.reads == (*convolution.reads, Value(3, 1))
    assert after.writes == (Value(4, 1), Value(9, 1))


def test_writes_in_place_move_together() -> None:
    filled = BoundFill(Binding(3, 0, 4), 0)
    first = (node("fill", filled), node("add", launch((1,), (3,)), version=2))
    preamble, rest = split(graph(*first, node("result", launch((0, 3), (9,)))))
    assert names(preamble) == ["fill", "add"]
    assert names(rest.nodes) == ["result"]


STAYING = {
    "captured memory that is written": (
        node("derive", launch((1,), (3,))),
        node("result", launch((0, 3), (9,))),
        node("train", launch((0,), (1,))),
    ),
    "a buffer that is accumulated into": (
        node("fill", BoundFill(Binding(3, 0, 4), 0)),
        node("add", launch((0,), (3,)), version=2),
    ),
    "a version between": (
        node("first", launch((1,), (3,))),
        node("use", launch((0, 3), (9,))),
        node("second", launch((2,), (3,)), version=2),
        node("use again", launch((0, 3), (9,)), version=2),
    ),
    "memory that nobody has written": (node("read", launch((3,), (4,))), node("use", launch((4,), (9,)))),
    "numbers that are others in each call": (
        node("draw", launch((1,), (3,), varying=(VaryingWord(0, 0, 0),))),
        node("use", launch((3,), (9,))),
    ),
    "calls of the host that no op explains": (
        node("draw", HostCall("draw", print, (Binding(3, 0, 4),), (True,))),
        node("use", launch((3,), (9,))),
    ),
    "an output": (node("copy", launch((1,), (9,))),),
}


@pytest.mark.parametrize("case", STAYING)
def test_what_stays(case: str) -> None:
    whole = graph(*STAYING[case])
    assert split(whole) == ((), whole)
    assert preamble(whole) is whole


def test_kept_values_stay() -> None:
    derive = node("derive", launch((1,), (3,)))
    whole = graph(derive, node("use", launch((0, 3), (9,))), kept=frozenset([Value(3, 1)]))
    assert preamble(whole) is whole


def test_transformed_filters_of_a_convolution(device: str) -> None:
    arrays: list[Any] = [
        RNG.standard_normal(shape).astype(np.float32) for shape in ((1, 64, 14, 14), (64, 64, 3, 3))
    ]
    buffers = {0: GraphBuffer(0, arrays[0].nbytes, "input"), 1: GraphBuffer(1, arrays[1].nbytes, "captured")}
    x, w = (
        Operand(Value(n, 0), array.shape, "float32", contiguous_strides(array.shape))
        for n, array in enumerate(arrays)
    )
    draft = Draft(Graph(device, buffers, ()))
    with algorithms.forced("winograd4"):
        convolution = draft.node("conv2d", (x, w, None), {"padding": 1})
    assert convolution.result is not None
    result = convolution.result.value.buffer
    draft.buffers[result] = GraphBuffer(result, draft.buffers[result].nbytes, "output")
    whole = Graph(device, draft.buffers, (convolution,), (0,), (convolution.result,))
    expected = Execution(whole, dict(enumerate(arrays)))
    expected.run()
    moved = preamble(whole)
    execution = Execution(moved, dict(enumerate(arrays)))
    execution.run(moved.preamble)
    for _ in range(2):
        execution.run(moved.nodes)
        np.testing.assert_array_equal(execution.contents(result), expected.contents(result))
    if device == "vulkan:0":
        assert len(moved.preamble) == 1
        assert len(moved.nodes[0].commands) < len(convolution.commands)
