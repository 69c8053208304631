"""Functions traced on a device, for tests of passes: graphs, what lies in memory before them, and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.tracing import trace
from dl4all.scheduler.listeners import capture
from tests.support.graph_execution import Execution
from tests.support.operands import NDArray


class Traced(NamedTuple):
    """A graph, the contents of memory from outside of it, and the one tensor that the call returned."""

    graph: Graph
    contents: dict[int, NDArray]
    result: NDArray

    def outcome(self, graph: Graph) -> NDArray:
        """What a graph that was made of this one returns."""
        verify(graph)
        execution = Execution(graph, self.contents)
        execution.run()
        [result] = graph.outputs
        data = execution.contents(result.value.buffer, result.dtype)
        strides = tuple(stride * data.itemsize for stride in result.strides)
        return np.ndarray(result.shape, data.dtype, data, result.offset * data.itemsize, strides).copy()


def traced(function: Callable[..., Any], *arrays: NDArray, device: str = "vulkan:0") -> Traced:
    """The graph of a function of tensors with these elements."""
    inputs = [dl.tensor(array, device=device) for array in arrays]
    tracer = trace.Tracer(inputs[0].device)
    with dl.no_grad(), capture.lock:
        result = trace.run(tracer, lambda: function(*inputs))
    assert not tracer.refusal
    graph = tracer.graph(inputs, [result], [])
    contents = dict(zip(graph.inputs, arrays, strict=True))
    outside = {**tracer.outside, **{number: storage for number, (storage, _) in tracer.constants.items()}}
    for number in outside.keys() - contents.keys():
        contents[number] = np.empty(outside[number].nbytes, np.uint8)
        inputs[0].device.download(outside[number], contents[number])
    return Traced(graph, contents, result.numpy())


def commands_of(graph: Graph) -> int:
    """How many commands a graph has."""
    return sum(len(node.commands) for node in graph.nodes)
