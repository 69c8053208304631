"""A model's copy on one device that computes batches of requests, and what is known of its speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.autograd.grad_mode import no_grad
from dl4all.multi_device.replica import duplicated, structure_copy
from dl4all.multi_device.serving.request import Request, rows
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
        largest: requests that it takes at once.
    """

    def __init__(self, model: Module, device: Device, largest: int) -> None:
        self.device = device
        self.largest = largest
        self.stream = Stream(device, name=f"inference on {device}")
        self.requests = 0  # that it answered
        self.seconds_per_request = 0.0  # lately; 0 where that is not known yet
        self.free_at = 0.0  # in virtual time
        self._model = structure_copy(model, device, duplicated).eval()
        for parameter in self._model.parameters():
            parameter.requires_grad_(False)

    def compute(self, requests: list[Request]) -> list[Any]:
        """The outputs of several requests of one key, on the CPU."""
        inputs = [
            from_numpy(np.stack(arrays), self.device)
            for arrays in zip(*(request.inputs for request in requests), strict=True)
        ]
        with no_grad(), phase("forward"):
            output = self._model(*inputs)
        if self.device.simulated is not None:
            self.device.simulated.synchronize()
        return rows(output, len(requests))

    def took(self, seconds: float, count: int) -> None:
        """So many requests were answered in so many seconds."""
        latest = seconds / count
        self.seconds_per_request = (self.seconds_per_request or latest) / 2 + latest / 2
        self.requests += count
