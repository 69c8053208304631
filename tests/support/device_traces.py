"""Traces of calls with arrays on a Vulkan device, and what their graphs compute there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.tracing import trace
from dl4all.scheduler.listeners import capture
from tests.conftest import need
from tests.support.graph_execution import Execution
from tests.support.operands import NDArray


def need_bindings(count: int) -> None:
    """Skip the test where vulkan:0 is missing, or binds fewer buffers at once, as the least device does."""
    need("vulkan:0")
    if dl.device("vulkan:0").info.limits.storage_buffers < count:
        pytest.skip(f"vulkan:0 binds fewer than {count} buffers")


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
