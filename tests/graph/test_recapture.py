"""The commands of an op on stand-ins are those that it gives for tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ShapeError
from dl4all.graph.ir.graph import BoundLaunch, Graph, GraphBuffer, Operand, Value
from dl4all.graph.tracing.recapture import CannotRecapture, Draft, shaped
from dl4all.ops.conv import algorithms
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import contiguous_strides
from tests.support.graph_execution import Execution

RNG = np.random.default_rng(18)


def graph_of(device: str, *arrays: Any, kind: Any = "input") -> tuple[Graph, list[Operand]]:
    """A graph without nodes, and an operand for each array."""
    buffers = {n: GraphBuffer(n, array.nbytes, kind) for n, array in enumerate(arrays)}
    operands = [
        Operand(Value(n, 0), array.shape, array.dtype.name, contiguous_strides(array.shape))
        for n, array in enumerate(arrays)
    ]
    return Graph(device, buffers, (), inputs=tuple(buffers)), operands


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "elementwise": ("mul", (floats(5, 7), floats(7)), {}),
    "number": ("add", (floats(13), 2.5), {}),
    "winograd": ("conv2d", (floats(2, 64, 14, 14), floats(67, 64, 3, 3), floats(67)), {"padding": 1}),
    "im2col": ("conv2d", (floats(2, 3, 13, 11), floats(5, 3, 3, 3), None), {"stride": 2}),
    "linear": ("linear", (floats(7, 13), floats(5, 13), floats(5)), {}),
    "norm": ("batch_norm_apply", (floats(2, 5, 4), floats(5), abs(floats(5)), floats(5), None), {}),
    "reduction": ("sum", (floats(3, 1499),), {"dim": 1}),
    "softmax": ("softmax", (floats(3, 17),), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_computes_its_op(device: str, case: str) -> None:
    op, operands, arguments = CASES[case]
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    graph, known = graph_of(device, *arrays)
    waiting = iter(known)
    draft = Draft(graph)
    node = draft.node(op, [next(waiting) if isinstance(o, np.ndarray) else o for o in operands], arguments)
    assert node.result is not None
    execution = Execution(Graph(device, draft.buffers, (node,)), dict(enumerate(arrays)))
    execution.run()
    with dl.no_grad():
        tensors = [dl.tensor(o, device=device) if isinstance(o, np.ndarray) else o for o in operands]
        expected = REGISTRY[op](*tensors, **arguments).numpy()
    found = execution.contents(node.result.value.buffer, node.result.dtype)
    np.testing.assert_array_equal(found.reshape(node.result.shape), expected)


def test_views_of_one_buffer_share_it(device: str) -> None:
    array = floats(4, 6)
    graph, (whole,) = graph_of(device, array)
    draft = Draft(graph)
    column = Operand(whole.value, (4,), "float32", (6,), 2)
    node = draft.node("sub", (column, Operand(whole.value, (4,), "float32", (6,), 5)))
    assert node.reads == (whole.value,)
    assert node.result is not None
    execution = Execution(Graph(device, draft.buffers, (node,)), {0: array})
    execution.run()
    np.testing.assert_array_equal(
        execution.contents(node.result.value.buffer), array[:, 2] - array[:, 5], strict=True
    )


def test_temporaries_of_kernels_get_buffers() -> None:
    x, w = floats(1, 64, 14, 14), floats(64, 64, 3, 3)
    graph, operands = graph_of("vulkan:0", x, w)
    draft = Draft(graph)
    with algorithms.forced("im2col"):
        node = draft.node("conv2d", (*operands, None), {"padding": 1})
    assert node.result is not None
    assert len(node.commands) > 1
    assert {value.buffer for value in node.writes} == draft.buffers.keys() - {0, 1}
    bound = {b.buffer for c in node.commands if isinstance(c, BoundLaunch) for b in c.bindings}
    assert bound == draft.buffers.keys()


def test_nothing_runs_and_nothing_is_allocated() -> None:
    graph, operands = graph_of("vulkan:0", floats(64, 64))
    device = dl.device("vulkan:0")
    before = device.counters.launches, device.pool.stats.allocated
    Draft(graph).node("matmul", (operands[0], operands[0]))
    assert (device.counters.launches, device.pool.stats.allocated) == before


def test_contents_that_are_not_there_are_refused() -> None:
    graph, (x,) = graph_of("vulkan:0", floats(3, 4).astype(np.float64))
    with pytest.raises(CannotRecapture):
        Draft(graph).node("sin", (x,))  # computed on the host
    assert Draft(graph).device.name == "vulkan:0"


def test_wrong_shapes_are_named(device: str) -> None:
    graph, (x, y) = graph_of(device, floats(3, 4), floats(5))
    with pytest.raises(ShapeError, match="add"):
        Draft(graph).node("add", (x, y))
    with pytest.raises(CannotRecapture):
        Draft(graph).node("add", (x, x), result=shaped(x, (12,)))
