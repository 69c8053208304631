"""Costs of a network that are known before it is trained, and limits of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from dl4all.autograd import no_grad
from dl4all.errors import ArgumentError
from dl4all.multi_device.placement.placement import place
from dl4all.multi_device.trace.work_trace import trace_work
from dl4all.nn.module import Module
from dl4all.scheduler.device.current import device as open_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import empty, from_numpy
from dl4all.tensor.tensor import Tensor


@dataclass(frozen=True)
class CostLimits:
    """CostLimits of a network's costs, by name."""

    most: dict[str, float]
    inputs: Any
    training: bool


def costs(
    model: Module, inputs: Any = None, *, device: str | Device = "auto", training: bool = False
) -> dict[str, float]:
    """Costs of a network: counted and predicted, without computing anything.

    Args:
        inputs: a batch, or its shape: a tensor, a shape, or a list of them. Without it only parameters are
            counted.
        device: whose memory and speed count; its speed is what was measured, or guessed from its kind.
        training: count a step, with its backward pass, in place of a call.

    Returns:
        ``"parameters"``, and with inputs ``"flops"``, ``"memory"`` in bytes and ``"milliseconds"``.

    Raises:
        ShapeError, DTypeError: the inputs do not fit the network.
        OutOfMemoryError: it does not fit the device.
        TraceError: what it computes depends on numbers.

    Example:
        >>> import dl4all as dl
        >>> found = dl.search.costs(dl.nn.Linear(64, 10), (1, 64), device="cpu")
        >>> found["parameters"], found["flops"]
        (650.0, 1280.0)
    """
    found = {"parameters": float(sum(p.numel() for p in model.parameters() if p.requires_grad))}
    if inputs is None:
        return found
    batch = tensors_of(inputs)
    work = trace_work(model, *batch, training=training)
    placement = place(model, [device], *batch, training=training, optimizer_bytes_per_parameter=0.0)
    return {
        **found,
        "flops": float(sum((work.step if training else work.forward).flops.values())),
        "memory": float(placement.stages[0].memory.total),
        "milliseconds": placement.seconds * 1e3,
    }


def latency(model: Module, inputs: Any, *, device: str | Device = "auto", calls: int = 20) -> float:
    """Milliseconds that a call takes on a device: the median of several, measured.

    The network is moved to the device, and is in evaluation mode meanwhile.

    Args:
        inputs: a batch, or its shape: a tensor, a shape, or a list of them.
        calls: how many are measured, after two others.

    Example:
        >>> import dl4all as dl
        >>> 0 < dl.search.latency(dl.nn.Linear(64, 10), (1, 64), device="cpu") < 1000
        True
    """
    target = open_device(device)
    batch = [tensor.to(target) for tensor in tensors_of(inputs)]
    before = model.training
    model.to(target).eval()
    seconds = []
    try:
        with no_grad():
            for _ in range(calls + 2):
                target.synchronize()
                begun = time.perf_counter()
                model(*batch)
                target.synchronize()
                seconds.append(time.perf_counter() - begun)
    finally:
        model.train(before)
    return median(seconds[2:]) * 1e3


def tensors_of(inputs: Any) -> list[Tensor]:
    """A batch from tensors or shapes, on the CPU."""
    if isinstance(inputs, Tensor):
        return [inputs]
    if isinstance(inputs, np.ndarray):
        return [from_numpy(inputs)]
    if isinstance(inputs, Sequence) and inputs and not isinstance(inputs, str):
        if all(isinstance(size, int) for size in inputs):
            return [empty(*inputs, device="cpu")]
        return [tensor for part in inputs for tensor in tensors_of(part)]
    raise ArgumentError(f"[search] expected tensors or shapes as inputs, got {inputs!r}")
