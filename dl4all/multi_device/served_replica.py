"""A model's copy on one device that computes batches of requests, and what is known of its speed."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np

from dl4all.autograd.grad_mode import no_grad
from dl4all.multi_device.request import Request, rows
from dl4all.nn.module import Module, Parameter
from dl4all.runtime.profiler.phase import phase
from dl4all.scheduler.device import Device
from dl4all.scheduler.stream import Stream
from dl4all.tensor.creation import from_numpy, tensor

M = TypeVar("M", bound=Module)


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
        self._model = copy_to(model, device).eval()

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


def copy_to(model: M, device: Device) -> M:
    """A copy of a module whose parameters and buffers have memory of their own on a device.

    >>> import dl4all as dl
    >>> model = dl.nn.Linear(2, 2)
    >>> made = copy_to(model, dl.device("cpu"))
    >>> made.weight is model.weight, made.weight.tolist() == model.weight.tolist()
    (False, True)
    """
    made: dict[int, Any] = {}  # by the identity of the original: what has several names is copied once

    def copied(value: Any) -> Any:
        if id(value) not in made:
            if isinstance(value, Module):
                made[id(value)] = copy.copy(value)
                fill(value, made[id(value)])
            else:
                moved = tensor(value.detach(), device=device)
                made[id(value)] = Parameter(moved, False) if isinstance(value, Parameter) else moved
        return made[id(value)]

    def fill(module: Module, twin: Module) -> None:
        buffers = {id(buffer) for buffer in module.buffers()}
        for name, value in vars(module).items():
            if isinstance(value, (Module, Parameter)) or id(value) in buffers:
                vars(twin)[name] = copied(value)
            elif isinstance(value, (dict, set, list)):  # what a layer keeps there may belong to its device
                vars(twin)[name] = copy.copy(value)

    result: M = copied(model)
    return result
