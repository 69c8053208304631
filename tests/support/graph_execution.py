"""Runs graphs command by command, each buffer in memory of its own: for tests of passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.allocator.storage import Storage
from dl4all.graph.ir.graph import Binding, BoundFill, BoundLaunch, Graph, HostCall, MultiTensorLaunch, Node
from dl4all.graph.run.multi_tensor_launches import expand
from dl4all.graph.tracing.trace import Tracer, run
from dl4all.ops.core.kernels.multi_tensor import MultiTensor
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.protocols import Span
from dl4all.scheduler.listeners import capture

Array = npt.NDArray[Any]


class Execution:
    """Memory for the buffers of a graph, which begins with the contents that are given."""

    def __init__(self, graph: Graph, contents: Mapping[int, Array]) -> None:
        self.graph = graph
        self.device = dl.device(graph.device)
        self.storages: dict[int, Storage] = {}
        for number, buffer in graph.buffers.items():
            tensor = dl.tensor(np.full(-(-buffer.nbytes // 4) or 1, np.nan, np.float32), device=self.device)
            if number in graph.contents:
                tensor = dl.tensor(np.frombuffer(graph.contents[number], np.uint8), device=self.device)
            if number in contents:
                tensor = dl.tensor(np.ascontiguousarray(contents[number]), device=self.device)
            self.storages[number] = tensor.storage
        self.plans = MultiTensor()

    def run(self, nodes: tuple[Node, ...] | None = None) -> None:
        """Run nodes, by default the preamble and all others."""
        for node in (*self.graph.preamble, *self.graph.nodes) if nodes is None else nodes:
            for command in node.commands:
                self._run(command)

    def contents(self, number: int, dtype: str = "float32") -> Array:
        """What a buffer holds."""
        count = self.graph.buffers[number].nbytes // np.dtype(dtype).itemsize
        return TensorBase(self.storages[number], (count,), np.dtype(dtype), self.device).on_host().copy()

    def _run(self, command: Any) -> None:
        if isinstance(command, BoundFill):
            binding = command.binding
            words = binding.offset // 4, binding.nbytes // 4
            self.device.fill(self.storages[binding.buffer], command.word, *words)
        elif isinstance(command, BoundLaunch):
            self.device.launch(command.launch, *map(self._piece, command.bindings))
        elif isinstance(command, HostCall):
            command.run(*(self._bytes(binding) for binding in command.bindings))
        elif isinstance(command, MultiTensorLaunch):
            for launch, storages in expand(command, self.tensor, self.device, self.plans):
                self.device.launch(launch, *storages)

    def tensor(self, binding: Binding) -> TensorBase:
        """The words of a binding."""
        storage, count = self.storages[binding.buffer], binding.nbytes // 4
        return TensorBase(storage, (count,), np.dtype(np.float32), self.device, None, binding.offset // 4)

    def _piece(self, binding: Binding) -> Storage:
        whole = self.storages[binding.buffer]
        if binding == (binding.buffer, 0, whole.nbytes):
            return whole
        span = Span(whole.buffer, whole.span.offset + binding.offset, -(-binding.nbytes // 4) * 4)
        return Storage(span, binding.nbytes, whole.allocation, whole)

    def _bytes(self, binding: Binding) -> Array:
        data: Array = self.storages[binding.buffer].buffer.data
        return data[binding.offset : binding.offset + binding.nbytes]


def traced(function: Callable[..., dl.Tensor], *tensors: dl.Tensor) -> tuple[Graph, dict[int, Array]]:
    """The graph of a call, and what its inputs, captured buffers and constants hold after it, as bytes."""
    tracer = Tracer(tensors[0].device)
    with capture.lock:
        result = run(tracer, lambda: function(*tensors))
    assert not tracer.refusal, tracer.refusal
    leaves = [leaf.grad_meta.grad for leaf in tracer.leaves.values() if leaf.grad_meta.grad is not None]
    graph = tracer.graph(tensors, [result], leaves)
    memory = dict(zip(graph.inputs, (tensor.storage for tensor in tensors), strict=True)) | tracer.outside
    memory.update((number, storage) for number, (storage, _) in tracer.constants.items())
    device = tensors[0].device
    return graph, {
        number: TensorBase(storage, (storage.nbytes,), np.dtype(np.uint8), device).on_host().copy()
        for number, storage in memory.items()
        if number in graph.buffers
    }
