"""Batch normalisation by captured statistics becomes part of what is in front of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dl4all.graph.ir.graph import Graph, GraphBuffer, Node, Operand, Value
from dl4all.graph.passes.fusion.batch_norm_folding import batch_norm_folding
from dl4all.graph.passes.preamble import preamble
from dl4all.graph.tracing.recapture import Draft
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import contiguous_strides
from tests.support.graph_execution import Execution

RNG = np.random.default_rng(18)

# Op, shapes of input, weight and bias, further arguments.
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "winograd": ("conv2d", ((3, 64, 14, 14), (64, 64, 3, 3), None), {"padding": 1}),
    "strided": ("conv2d", ((2, 3, 13, 11), (5, 3, 3, 3), (5,)), {"stride": 2}),
    "groups": ("conv2d", ((1, 6, 7, 7), (6, 1, 3, 3), None), {"groups": 6}),
    "conv1d": ("conv1d", ((2, 3, 13), (5, 3, 3), (5,)), {}),
    "conv3d": ("conv3d", ((5, 2, 5, 5, 5), (3, 2, 3, 3, 3), None), {}),
    "linear": ("linear", ((17, 13), (5, 13), (5,)), {}),
}


def normalised(
    device: str, case: str, *, affine: bool = True, statistics: Any = "captured", dtype: str = "float32"
) -> tuple[Graph, dict[int, Any]]:
    """A graph of an op and of the normalisation of its result, and the contents of its buffers."""
    op, shapes, arguments = CASES[case]
    channels = shapes[1][0]
    of_channels = [(channels,)] * (4 if affine else 2)
    arrays = [RNG.standard_normal(shape).astype(dtype) for shape in shapes if shape] + [
        (abs(RNG.standard_normal(shape)) + 0.5).astype(dtype) for shape in of_channels
    ]
    kinds = ["input", *["captured"] * (len(arrays) - 1)]
    mean_at = 2 if shapes[2] is None else 3
    kinds[mean_at] = statistics
    buffers = {
        n: GraphBuffer(n, array.nbytes, kind)  # type: ignore[arg-type]
        for n, (array, kind) in enumerate(zip(arrays, kinds, strict=True))
    }
    operands = [
        Operand(Value(n, 0), array.shape, dtype, contiguous_strides(array.shape))
        for n, array in enumerate(arrays)
    ]
    draft = Draft(Graph(device, buffers, ()))
    bias = None if shapes[2] is None else operands[2]
    first = draft.node(op, (*operands[:2], bias), arguments)
    scale_and_shift = operands[mean_at + 2 :] if affine else (None, None)
    eps = {"eps": 1e-3}
    norm = draft.node(
        "batch_norm_apply", (first.result, *operands[mean_at : mean_at + 2], *scale_and_shift), eps
    )
    assert norm.result is not None
    result = norm.result.value.buffer
    draft.buffers[result] = GraphBuffer(result, draft.buffers[result].nbytes, "output")
    graph = Graph(device, draft.buffers, (first, norm), (0,), (norm.result,))
    return graph, dict(enumerate(arrays))


def result_of(graph: Graph, contents: dict[int, Any]) -> Any:
    execution = Execution(graph, contents)
    execution.run()
    return execution.contents(graph.outputs[0].value.buffer, graph.outputs[0].dtype)


def with_op(nodes: tuple[Node, ...], op: str) -> list[Node]:
    return [node for node in nodes if node.op == op]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_folded_equals_separate(device: str, case: str, affine: bool) -> None:
    graph, contents = normalised(device, case, affine=affine)
    folded = batch_norm_folding(graph)
    assert not with_op(folded.nodes, "batch_norm_apply")
    (whole,) = with_op(folded.nodes, CASES[case][0])
    assert whole.parts == graph.nodes
    assert whole.result == graph.outputs[0]
    expected = result_of(graph, contents)
    found = result_of(folded, contents)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())


def test_new_weights_move_to_the_preamble(device: str) -> None:
    graph, contents = normalised(device, "winograd")
    moved = preamble(batch_norm_folding(graph))
    assert [node.op for node in moved.nodes] == ["conv2d"]
    assert {node.op for node in moved.preamble} >= {"mul", "rsqrt"}
    expected = result_of(graph, contents)
    np.testing.assert_allclose(result_of(moved, contents), expected, atol=1e-4 * abs(expected).max())


def test_a_chain_of_two(device: str) -> None:
    graph, contents = normalised(device, "linear")
    draft = Draft(graph)
    (out,) = graph.outputs
    draft.buffers[out.value.buffer] = replace(draft.buffers[out.value.buffer], kind="temporary")
    w = Operand(Value(1, 0), (13, 5), "float32", (1, 13))
    statistics = [Operand(Value(1, 0), (13,), "float32", (1,), offset) for offset in (0, 13)]
    second = draft.node("linear", (out, w, None))
    norm = draft.node("batch_norm_apply", (second.result, *statistics, None, None), {"eps": 1000.0})
    assert norm.result is not None
    draft.buffers[norm.result.value.buffer] = replace(draft.buffers[norm.result.value.buffer], kind="output")
    longer = Graph(device, draft.buffers, (*graph.nodes, second, norm), (0,), (norm.result,))
    folded = batch_norm_folding(longer)
    assert len(with_op(folded.nodes, "linear")) == 2
    assert not with_op(folded.nodes, "batch_norm_apply")
    expected = result_of(longer, contents)
    np.testing.assert_allclose(result_of(folded, contents), expected, atol=1e-4 * abs(expected).max())


def test_what_stays() -> None:
    def stays(graph: Graph) -> bool:
        return batch_norm_folding(graph) is graph

    graph, _ = normalised("cpu", "strided", statistics="input")
    assert stays(graph), "statistics of the call"
    graph, _ = normalised("cpu", "strided")
    assert not stays(graph)
    first, norm = graph.nodes
    assert stays(replace(graph, kept=frozenset(first.writes))), "a result that is kept"
    draft = Draft(graph)
    another = draft.node("neg", (first.result,))
    assert stays(replace(graph, buffers=draft.buffers, nodes=(first, norm, another))), "a second reader"
    assert stays(replace(graph, nodes=(first, replace(norm, op="neg")))), "another op"
    update = draft.node("neg", (norm.operands[1],))
    update = replace(update, writes=(Value(3, 1),))
    assert stays(replace(graph, buffers=draft.buffers, nodes=(first, norm, update))), "statistics that change"


def test_half_precision_stays() -> None:
    graph, _ = normalised("cpu", "strided", dtype="float16")
    assert batch_norm_folding(graph) is graph
    graph, contents = normalised("cpu", "strided", dtype="float64")
    folded = batch_norm_folding(graph)
    assert folded is not graph
    np.testing.assert_allclose(result_of(folded, contents), result_of(graph, contents), rtol=1e-9, atol=1e-9)


def test_every_foldable_op_is_declared() -> None:
    assert {case[0] for case in CASES.values()} <= REGISTRY.keys()
