"""A model's copy on one device that computes batches of requests, and what is known of its speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.autograd.grad_mode import no_grad
from dl4all.graph.run.compiled import compile
from dl4all.multi_device.replica import duplicated, structure_copy
from dl4all.multi_device.serving.request import Request, joined, rows
from dl4all.nn.module import Module
from dl4all.runtime.profiler.phase import phase
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.stream import Stream
from dl4all.tensor.creation import from_numpy


class ServedReplica:
    """One device of an inference queue.

    Args:
        model: any module, which stays as it is.
        device: where a copy of it computes, in inference mode.
        largest: rows that it computes at once.
        compiled: one graph for each batch size that occurs.
    """

    def __init__(self, model: Module, device: Device, largest: int, compiled: bool = False) -> None:
        self.device = device
        self.largest = largest
        self.stream = Stream(device, name=f"inference on {device}")
        self.requests = 0  # that it answered
        self.seconds_per_row = 0.0  # lately; 0 where that is not known yet
        self.free_at = 0.0  # in virtual time
        self._model = structure_copy(model, device, duplicated).eval()
        for parameter in self._model.parameters():
            parameter.requires_grad_(False)
        self._call = compile(self._model) if compiled else self._model

    def compute(self, requests: list[Request]) -> list[Any]:
        """The outputs of several requests of one key, on the CPU. Large ones are computed piece by piece."""
        parts = [request.inputs for request in requests]
        inputs = [concatenated(arrays) for arrays in zip(*parts, strict=True)]
        with no_grad(), phase("forward"):
            outputs = [
                self._call(
                    *(from_numpy(array[begin : begin + self.largest], self.device) for array in inputs)
                )
                for begin in range(0, len(inputs[0]), self.largest)
            ]
        if self.device.simulated is not None:
            self.device.simulated.synchronize()
        return rows(outputs[0] if len(outputs) == 1 else joined(outputs), requests)

    def took(self, seconds: float, requests: int, rows: int) -> None:
        """So many requests with so many rows were answered in so many seconds."""
        latest = seconds / rows
        self.seconds_per_row = (self.seconds_per_row or latest) / 2 + latest / 2
        self.requests += requests


def concatenated(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The arrays as one, along their first axis."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
