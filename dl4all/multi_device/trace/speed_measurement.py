"""Measuring a device with a model, so that predictions go by the kernels that such models use."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.autograd.backward_pass import backward
from dl4all.multi_device.replica import structure_copy
from dl4all.multi_device.structure import tensors_of
from dl4all.nn.module import Module
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import kind_of
from dl4all.runtime.work import Speeds
from dl4all.scheduler.cost.speed_fit import fit
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.monitor.profile import profile
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

STEPS = 4  # of which the median counts; one more before them builds the kernels
VALUE = 0.01  # of all floats: neither so small that processors become slow, nor growing from layer to layer


def measure_speeds(model: Module, device: Device, *example_inputs: Any, training: bool = True) -> Speeds:
    """Run a copy of a model on a device, and find the speeds that explain the times of its ops.

    Of the model only the structure is used. Later predictions go by the speeds once
    :func:`dl4all.scheduler.cost.speed_fit.keep` has kept them.

    Args:
        model: on any device.
        device: a real one. It needs the memory for the model and the batch.
        example_inputs: what the model is called with; ints keep their values.
        training: whether the backward pass is measured too.

    Raises:
        OutOfMemoryError: the batch is too large for the device.
        ArgumentError: a profile is active.

    Example:
        >>> import dl4all as dl
        >>> net = dl.nn.Sequential(dl.nn.Linear(32, 32), dl.nn.ReLU())
        >>> measure_speeds(net, dl.device("cpu"), dl.zeros(8, 32)).per_flop_of.keys()
        dict_keys(['linalg.linear', 'linalg.matmul'])
    """
    network = structure_copy(model, device).train(training)
    for tensor in network.state_dict().values():
        _fill(tensor)
    inputs = [_on(value, device) for value in example_inputs]
    _step(network, inputs, training)
    device.synchronize()
    with profile() as measured:
        for _ in range(STEPS):
            _step(network, inputs, training)
    return fit(measured, device)


def _step(network: Module, inputs: list[Any], training: bool) -> None:
    network.zero_grad()
    with tape.gradients(training):
        outputs = network(*inputs)
        roots = [tensor for tensor in tensors_of(outputs) if training and tape.wants_gradient(tensor)]
    if roots:
        backward(roots, [_filled(root.shape, root.dtype, root.device) for root in roots])


def _fill(tensor: Tensor) -> None:
    filled = _filled(tensor.shape, tensor.dtype, tensor.device)
    tensor.storage, tensor.strides, tensor.offset = filled.storage, filled.strides, 0


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> Tensor:
    return from_numpy(np.full(shape, VALUE if kind_of(dtype) == "f" else 0, dtype), device)


def _on(value: Any, device: Device) -> Any:
    """A tensor or array on a device; floats of the same shape, ints as they are."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return value
    if kind_of(value.dtype) == "f":
        return _filled(value.shape, value.dtype, device)
    return from_numpy((value.detach().numpy() if isinstance(value, Tensor) else value).copy(), device)
