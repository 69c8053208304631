"""The micro-batches of a batch, the loss of one of them, and gradients beside those that are there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from dl4all.errors import GradientError, ShapeError
from dl4all.nn.module import Parameter
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

Bounds = Sequence[tuple[int, int]]


def bounds_of(inputs: Any, micro_batches: int) -> list[tuple[int, int]]:
    """The bounds of micro-batches, as even as possible.

    Raises:
        ShapeError: there is no input.
    """
    if not isinstance(inputs, Tensor) or not inputs.ndim or not len(inputs):
        shape = inputs.shape if isinstance(inputs, Tensor) else type(inputs).__name__
        raise ShapeError(f"[Pipeline] expected a tensor of inputs along its first axis, got {shape}")
    sizes = [len(part) for part in np.array_split(np.arange(len(inputs)), micro_batches)]
    return list(pairwise(accumulate(filter(None, sizes), initial=0)))


def pieces_of(batch: Tensor, bounds: Bounds, device: Device) -> list[Tensor]:
    """The micro-batches of a batch, on their way to a device."""
    return [batch[begin:stop].to(device, non_blocking=True) for begin, stop in bounds]


def loss_of_piece(
    inputs: Tensor, targets: Tensor, bounds: Bounds, loss: Callable[[Any, Any], Any], device: Device
) -> Callable[[int, Tensor], Tensor]:
    """A function of a micro-batch's number and outputs, which gives its part of the batch's loss.

    Raises:
        ShapeError: there are not as many targets as inputs.
        GradientError: from the function: the loss is not a single number.
    """
    if targets.shape[:1] != inputs.shape[:1]:
        raise ShapeError(
            f"[Pipeline] expected as many targets as inputs, got {targets.shape} and {inputs.shape}"
        )
    wanted = pieces_of(targets, bounds, device)
    is_sum = getattr(loss, "reduction", "mean") == "sum"

    def part(number: int, outputs: Tensor) -> Tensor:
        value = loss(outputs, wanted[number])
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise GradientError(f"[Pipeline] the loss must be a tensor of one number, got {value!r}")
        begin, stop = bounds[number]
        share = 1.0 if is_sum else (stop - begin) / len(inputs)
        return value if share == 1.0 else value * share

    return part


@contextlib.contextmanager
def gradients_aside(parameters: Sequence[Parameter]) -> Iterator[Sequence[Parameter]]:
    """Within, no parameter has a gradient; afterwards each has what it had before."""
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield parameters
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
