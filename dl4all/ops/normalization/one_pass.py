"""Passes of normalisation that are one kernel of the CPU, where other devices run several."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dl4all.ops.core.kernels.host_work import WorkKernel, host_work, takes_in_one_pass
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.ops.normalization import host
from dl4all.scheduler import listeners

FORWARD, BACKWARD = "batch_norm_training", "batch_norm_gradients"
ROWS_BACKWARD = "grouped_norm_gradients"


def in_one_pass(input: TensorBase, *changed: TensorBase | None) -> bool:
    """Whether a kernel takes the whole pass; it changes contiguous tensors, and graphs want single ops."""
    return (
        takes_in_one_pass(FORWARD, input)
        and not listeners.captured()
        and all(tensor is None or tensor.is_contiguous() for tensor in changed)
    )


def training_pass(
    input: TensorBase,
    running_mean: TensorBase | None,
    running_var: TensorBase | None,
    weight: TensorBase | None,
    bias: TensorBase | None,
    momentum: float,
    eps: float,
) -> tuple[Any, Any]:
    """The normalised input and what :func:`batch_norm_stats` returns; moves the running statistics."""
    cls, device, dtype = type(input).result_class, input.device, input.dtype
    result = empty(cls, input.shape, dtype, device, "batch_norm")
    stats = empty(cls, (2, input.shape[1]), dtype, device, "batch_norm_stats")
    reads = {"x": input, "weight": weight, "bias": bias}
    writes = {"out": result, "stats": stats, "running_mean": running_mean, "running_var": running_var}
    _work(FORWARD, _train, reads, writes, float(eps), (float(momentum),))
    for running in (running_mean, running_var):
        if running is not None:
            running.storage.version += 1
    return result, stats


def gradients_pass(
    grad: TensorBase,
    input: TensorBase,
    stats: TensorBase,
    weight: TensorBase | None,
    eps: float,
    needs: tuple[bool, ...],
) -> list[Any]:
    """The gradients of input, weight and bias."""
    cls, device, dtype = type(input).result_class, input.device, input.dtype
    sums = empty(cls, (2, input.shape[1]), dtype, device, "batch_norm_sums")
    result = empty(cls, input.shape, dtype, device, "batch_norm_backward") if needs[0] else None
    reads = {"grad": grad, "x": input, "stats": stats, "weight": weight if needs[0] else None}
    _work(BACKWARD, _differentiate, reads, {"sums": sums, "out": result}, float(eps))
    return [result, *_halves(sums)]


def _halves(sums: TensorBase) -> tuple[Any, Any]:
    """The gradients of weight and bias."""
    channels = sums.shape[1]
    return sums.strided_view((channels,), (1,), channels), sums.strided_view((channels,), (1,), 0)


def rows_gradients_pass(
    function: Any,
    grad: TensorBase,
    input: TensorBase,
    weight: TensorBase | None,
    groups: int,
    eps: float,
    center: bool,
) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias of :func:`grouped_norm`; `function` computes them in NumPy."""
    cls, device, dtype = type(input).result_class, input.device, input.dtype
    result = empty(cls, input.shape, dtype, device, ROWS_BACKWARD)
    sums = empty(cls, (2, input.shape[1]), dtype, device, ROWS_BACKWARD)
    reads = [contiguous(tensor) for tensor in (grad, input, weight) if tensor is not None]
    kernel = WorkKernel(ROWS_BACKWARD, (groups, float(eps), center))
    host_work(ROWS_BACKWARD, function, reads, [result, sums], (), kernel)
    return result, *_halves(sums)


def _work(
    name: str,
    function: Any,
    reads: dict[str, TensorBase | None],
    writes: dict[str, TensorBase | None],
    eps: float,
    numbers: tuple[float, ...] = (),
) -> None:
    read = {name: contiguous(tensor) for name, tensor in reads.items() if tensor is not None}
    written = {name: tensor for name, tensor in writes.items() if tensor is not None}
    constants = ((*read, *written), eps)
    work, kernel = partial(function, *constants), WorkKernel(name, constants)
    host_work(name, work, list(read.values()), list(written.values()), numbers, kernel)


def _train(names: tuple[str, ...], eps: float, *given: Any) -> None:
    arrays, momentum = dict(zip(names, given[:-1], strict=True)), given[-1]
    x, stats = arrays["x"], arrays["stats"]
    stats[...] = host.statistics(x)
    scale = 1 / np.sqrt(stats[1] + np.asarray(eps, x.dtype))
    if "weight" in arrays:
        scale = scale * arrays["weight"]
    arrays["out"][...] = host.apply(x, stats[0], scale, arrays.get("bias"))
    if "running_mean" in arrays:
        count = x.size // x.shape[1]
        for name, value in (("running_mean", stats[0]), ("running_var", stats[1] * (count / (count - 1)))):
            arrays[name][...] = arrays[name] * (1 - momentum) + value * momentum


def _differentiate(names: tuple[str, ...], eps: float, *given: Any) -> None:
    arrays = dict(zip(names, given, strict=True))
    g, x, sums, (mean, var) = arrays["grad"], arrays["x"], arrays["sums"], arrays["stats"]
    count = x.size // x.shape[1]
    deviation = 1 / np.sqrt(var + np.asarray(eps, x.dtype))
    sums[...] = host.gradient_sums(g, x, mean, deviation)
    if "out" in arrays:
        scale = deviation * arrays["weight"] if "weight" in arrays else deviation
        arrays["out"][...] = host.backward(g, x, mean, scale, sums[0] / count, sums[1] * deviation / count)
