"""Traced functions, and their graphs run command by command."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dl4all as dl
from dl4all.allocator.storage import Storage
from dl4all.graph import trace
from dl4all.graph.graph import BoundFill, BoundLaunch, Graph
from dl4all.scheduler import capture
from tests.support.operands import NDArray


class Traced(NamedTuple):
    """A graph, the memory that exists outside of it, and what the traced call returned."""

    graph: Graph
    memory: dict[int, Storage]
    result: NDArray


def traced(function: Callable[..., Any], *inputs: Any) -> Traced:
    """The graph of a call that returns one tensor."""
    tracer = trace.Tracer(inputs[0].device)
    with capture.lock:
        result = trace.run(tracer, function, inputs, {})
    assert not tracer.refusal
    graph = tracer.graph(inputs, [result], [])
    memory = {**tracer.outside, **{number: storage for number, (storage, _) in tracer.constants.items()}}
    memory |= {number: tensor.storage for number, tensor in zip(graph.inputs, inputs, strict=True)}
    return Traced(graph, memory, result.numpy())


def outcome(graph: Graph, memory: dict[int, Storage]) -> NDArray:
    """What a graph computes, on new memory that holds nan, or other nonsense."""
    device = dl.device(graph.device)
    storages = dict(memory)
    for number, buffer in graph.buffers.items():
        if number not in storages:
            storages[number] = device.allocate(buffer.nbytes)
            device.fill(storages[number], 0x7FC00000)
    for node in graph.nodes:
        for command in node.commands:
            if isinstance(command, BoundFill):
                device.fill(storages[command.binding.buffer], command.word)
            else:
                assert isinstance(command, BoundLaunch)
                assert not any(binding.offset for binding in command.bindings)
                device.launch(command.launch, *(storages[binding.buffer] for binding in command.bindings))
    [operand] = graph.outputs
    array = np.empty(operand.offset + math.prod(operand.shape), operand.dtype)
    device.download(storages[operand.value.buffer], array)
    return array[operand.offset :].reshape(operand.shape)


def dispatches(graph: Graph) -> int:
    """How many commands a graph has."""
    return sum(len(node.commands) for node in graph.nodes)
