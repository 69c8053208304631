"""What graphs compute before and after a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.graph.ir.graph import Graph
from dl4all.graph.ir.verifier import verify
from dl4all.graph.tracing.trace import trace
from dl4all.ops.core.dtypes import kind_of
from tests.support.graph_execution import Execution

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 3e38, -7e-5, 2.0**-100, 123.25], np.float32
)
"""Numbers for which identities of real numbers may not hold."""


def traced_on_device(function: Callable[..., Any], *arrays: npt.NDArray[Any]) -> Graph:
    """The graph of a function that captures nothing, on a device that computes."""
    with dl.no_grad():
        return trace(function, *(dl.tensor(array, device="vulkan:0") for array in arrays))


def results(graph: Graph, *arrays: npt.NDArray[Any]) -> list[bytes]:
    """The bytes of a graph's outputs; nan is nan, whatever its bits."""
    execution = Execution(graph, dict(zip(graph.inputs, arrays, strict=True)))
    execution.run()
    found = []
    for output in graph.outputs:
        array = execution.contents(output.value.buffer, output.dtype)
        if kind_of(array.dtype) == "f":
            array[np.isnan(array)] = np.nan
        found.append(array.tobytes())
    return found


def check_pass(
    one: Callable[[Graph], Graph], function: Callable[..., Any], *arrays: npt.NDArray[Any]
) -> tuple[list[str], list[str]]:
    """The names of the nodes before and after a pass, which must not change a bit of the results."""
    before = traced_on_device(function, *arrays)
    verify(before)
    after = one(before)
    verify(after)
    assert results(before, *arrays) == results(after, *arrays)
    return [node.name for node in before.nodes], [node.name for node in after.nodes]
