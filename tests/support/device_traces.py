"""Traces of calls with arrays on a Vulkan device, and what their graphs compute there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import dl4all as dl
from dl4all.graph import trace
from dl4all.graph.graph import Graph
from dl4all.scheduler import capture
from tests.support.graph_execution import Execution
from tests.support.operands import NDArray


class Traced(NamedTuple):
    """A graph, the contents of the memory that exists outside of it, and what the traced call returned."""

    graph: Graph
    contents: dict[int, NDArray]
    result: NDArray

    @property
    def outcome(self) -> NDArray:
        """What the graph computes."""
        execution = Execution(self.graph, self.contents)
        execution.run()
        [result] = self.graph.outputs
        return execution.contents(result.value.buffer).reshape(result.shape)


def traced_on_device(function: Callable[..., Any], *arrays: NDArray) -> Traced:
    """The trace of a call on vulkan:0 that returns one tensor."""
    inputs = [dl.tensor(array, device="vulkan:0") for array in arrays]
    tracer = trace.Tracer(inputs[0].device)
    with dl.no_grad(), capture.lock:
        result = trace.run(tracer, lambda: function(*inputs))
    assert not tracer.refusal
    graph = tracer.graph(inputs, [result], [])
    contents = dict(zip(graph.inputs, arrays, strict=True))
    return Traced(graph, contents, result.numpy())
