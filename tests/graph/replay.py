"""Runs a graph's commands one by one, for tests of passes: without plan, recording or guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.allocator.storage import Storage
from dl4all.graph.ir.graph import BoundFill, BoundLaunch, Graph
from dl4all.ops.core.dtypes import BFLOAT16


def replay(graph: Graph, *inputs: dl.Tensor) -> list[npt.NDArray[Any]]:
    """The results of a graph whose only memory from outside are its inputs, which stay as they are."""
    device = dl.device(graph.device)
    storages = {number: device.allocate(buffer.nbytes) for number, buffer in graph.buffers.items()}
    for storage in storages.values():  # so that nothing is right by chance
        device.write(storage, np.full(storage.nbytes, 0xA5, np.uint8))
    for number, tensor in zip(graph.inputs, inputs, strict=True):
        data = np.empty(tensor.storage.nbytes, np.uint8)
        device.download(tensor.storage, data)
        device.write(storages[number], data)
    for node in graph.nodes:
        for command in node.commands:
            if isinstance(command, BoundFill):
                first = command.binding.offset // 4
                device.fill(
                    storages[command.binding.buffer], command.word, first, command.binding.nbytes // 4
                )
            else:
                assert isinstance(command, BoundLaunch)
                assert not any(binding.offset for binding in command.bindings)
                device.launch(command.launch, *(storages[binding.buffer] for binding in command.bindings))
    return [_elements(device, storages, operand) for operand in graph.outputs]


def _elements(device: dl.Device, storages: dict[int, Storage], operand: Any) -> npt.NDArray[Any]:
    storage = storages[operand.value.buffer]
    data = np.empty(storage.nbytes, np.uint8)
    device.download(storage, data)
    dtype = np.dtype(operand.dtype)
    strides = tuple(stride * dtype.itemsize for stride in operand.strides)
    return np.ndarray(operand.shape, dtype, data, operand.offset * dtype.itemsize, strides).copy()


def dispatches(graph: Graph) -> int:
    """How many commands a graph has."""
    return sum(len(node.commands) for node in graph.nodes)


def same_bits(one: Sequence[npt.NDArray[Any]], other: Sequence[npt.NDArray[Any]]) -> None:
    """Raise unless all results are equal bit for bit, but for the payloads of nans."""
    for a, b in zip(one, other, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype == BFLOAT16:  # of which NumPy knows no nan
            a, b = a.astype(np.float32), b.astype(np.float32)
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            known = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))
