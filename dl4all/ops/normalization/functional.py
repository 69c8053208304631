"""Batch, instance, group, layer and RMS normalisation as functions with PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.ops.core import strides, tape
from dl4all.ops.core.checks import check_float, check_parameters
from dl4all.ops.core.dtypes import finfo, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.indexing.assignment import copy_
from dl4all.ops.memory.views import in_shape, reshape
from dl4all.ops.normalization.batch_normalization import (
    batch_norm_apply,
    batch_norm_backward,
    batch_norm_stats,
    batch_norm_sums,
    check_channels,
)
from dl4all.ops.normalization.group_normalization import check_groups, grouped_norm
from dl4all.ops.normalization.one_pass import gradients_pass, in_one_pass, training_pass
from dl4all.ops.reduce.sums import sum_to
from dl4all.ops.reduce.vector_norm import norm as vector_norm


@export("F")
def batch_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Batch normalisation: each channel gets mean 0 and variance 1, then is scaled and shifted.

    ``(input - mean) / sqrt(var + eps) * weight + bias`` (Ioffe and Szegedy, arXiv:1502.03167). Training uses
    the mean and variance of the batch, and moves the running ones towards them by the share `momentum`, in
    place, with n - 1 in the denominator of the variance. Otherwise the running ones are used.

    Args:
        input: floats of shape (N, C, ...).
        running_mean, running_var: shape (C,); needed unless `training`.
        weight, bias: shape (C,).
        training: whether to use the batch's statistics.
        momentum: the share of the batch in the running statistics.
        eps: keeps the square root away from 0.

    Returns:
        The input's shape.

    Raises:
        ShapeError: shapes do not fit, or a channel has a single element in training.
        DTypeError: the operands are not floats of one dtype.
        ArgumentError: running statistics are missing.

    Example:
        >>> import dl4all as dl
        >>> x, mean, var = dl.tensor([[1.0], [5.0]]), dl.tensor([3.0]), dl.tensor([4.0])
        >>> dl.nn.functional.batch_norm(x, mean, var, eps=0.0).tolist()
        [[-1.0], [1.0]]
    """
    operands = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_operands("batch_norm", input, operands, needs_running=not training)
    if not training:
        return batch_norm_apply(input, running_mean, running_var, weight, bias, eps=eps)
    count = input.numel() // max(input.shape[1], 1)
    if input.shape[0] == 0:  # no sample, and no statistics
        none = from_host(
            type(input).result_class, np.zeros(input.shape[1], input.dtype), input.device, copy=False
        )
        return batch_norm_apply(input, none, none, weight, bias, eps=1.0)
    if count < 2:
        raise ShapeError(
            f"[batch_norm] training needs more than 1 element for each channel, got shape {input.shape}"
        )
    if in_one_pass(input, running_mean, running_var):
        with tape.gradients(False):
            result, stats = training_pass(input, running_mean, running_var, weight, bias, momentum, eps)
    else:
        with tape.gradients(False):
            stats = batch_norm_stats(input)
            result = batch_norm_apply(input, stats[0], stats[1], weight, bias, eps=eps)
            if running_mean is not None:
                update_running(running_mean, stats[0], momentum)
                update_running(running_var, stats[1] * (count / (count - 1)), momentum)

    def backward(grads: Any, saved: tuple[Any, ...], needs: tuple[bool, ...]) -> list[Any]:
        g, (x, w, saved_stats) = grads[0], saved
        if in_one_pass(g) and not tape.state.enabled:
            return gradients_pass(g, x, saved_stats, w, eps, needs)
        # Computed again from x where this is to be differentiated again.
        mean, var = batch_norm_stats(x) if tape.state.enabled else saved_stats
        sums = batch_norm_sums(g, x, mean, var, eps=eps)
        input_gradient = batch_norm_backward(g, x, mean, var, sums, w, eps=eps) if needs[0] else None
        return [input_gradient, sums[1], sums[0]]

    tape.add_node("batch_norm", [input, weight, bias], [result], backward, [input, weight, stats])
    return result


@export("F")
def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Instance normalisation: each channel of each sample by its own statistics.

    Ulyanov et al., arXiv:1607.08022.

    Args:
        input: floats of shape (N, C, L, ...).
        running_mean, running_var: shape (C,); move towards the average over samples as in :func:`batch_norm`.
        weight, bias: shape (C,).
        use_input_stats: False takes the running statistics instead.
        momentum: the share of the input in the running statistics.
        eps: keeps the square root away from 0.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.instance_norm(dl.tensor([[[1.0, 5.0], [2.0, 2.0]]]), eps=0.25).shape
        (1, 2, 2)
    """
    operands = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check_operands("instance_norm", input, operands, needs_running=not use_input_stats)
    if not use_input_stats:
        return batch_norm_apply(input, running_mean, running_var, weight, bias, eps=eps)
    samples, channels, count = input.shape[0], input.shape[1], math.prod(input.shape[2:])
    if count < 2:
        raise ShapeError(
            f"[instance_norm] expected more than 1 element for each channel, got shape {input.shape}"
        )
    result = grouped_norm(input, weight, bias, groups=channels, eps=eps)
    if running_mean is not None and samples:
        with tape.gradients(False):
            stats = batch_norm_stats(reshape(input, 1, samples * channels, count))
            average = sum_to(reshape(stats, 2, samples, channels), (2, 1, channels)) * (1 / samples)
            update_running(running_mean, average[0, 0], momentum)
            update_running(running_var, average[1, 0] * (count / (count - 1)), momentum)
    return result


@export("F", autocast="float32")
def group_norm(
    input: Array, num_groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """Group normalisation: each group of channels of each sample by its own statistics.

    Wu and He, arXiv:1803.08494.

    Args:
        input: floats of shape (N, C, ...).
        num_groups: the number of groups that the channels are split into.
        weight, bias: shape (C,).
        eps: keeps the square root away from 0.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError
        ArgumentError: the number of channels is not a multiple of the number of groups.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.group_norm(dl.tensor([[1.0, 5.0, 2.0, 4.0]]), 2, eps=0.0).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]
    """
    _check_tensors("group_norm", input, weight, bias)
    check_channels("group_norm", input, weight=weight, bias=bias)
    check_groups("group_norm", input.shape[1], num_groups)
    return grouped_norm(input, weight, bias, groups=num_groups, eps=eps)


@export("F", autocast="float32")
def layer_norm(
    input: Array,
    normalized_shape: int | Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Layer normalisation: by mean and variance over the last axes (Ba et al., arXiv:1607.06450).

    Args:
        input: floats of shape (..., *normalized_shape).
        normalized_shape: the sizes of the last axes.
        weight, bias: shape `normalized_shape`.
        eps: keeps the square root away from 0.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.layer_norm(dl.tensor([[1.0, 5.0], [2.0, 4.0]]), (2,), eps=0.0).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]
    """
    return _normalize_last_axes("layer_norm", input, normalized_shape, weight, bias, eps, center=True)


@export("F", autocast="float32")
def rms_norm(
    input: Array, normalized_shape: int | Sequence[int], weight: Array | None = None, eps: float | None = None
) -> Array:
    """RMS normalisation: division by the root mean square over the last axes.

    Zhang and Sennrich, arXiv:1910.07467.

    Args:
        input: floats of shape (..., *normalized_shape).
        normalized_shape: the sizes of the last axes.
        weight: shape `normalized_shape`.
        eps: is added to the mean of the squares; defaults to the dtype's machine epsilon.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.rms_norm(dl.tensor([3.0, -3.0]), 2, eps=0.0).tolist()
        [1.0, -1.0]
    """
    if eps is None:
        eps = float(finfo(input.dtype).eps) if kind_of(getattr(input, "dtype", np.dtype(int))) == "f" else 0.0
    return _normalize_last_axes("rms_norm", input, normalized_shape, weight, None, eps, center=False)


@export("F")
def normalize(input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Array:
    """Vectors divided by their norm.

    Args:
        input: floats of any shape.
        p: the order of the norm ``sum(abs(x)**p)**(1/p)``; ``inf`` is the largest absolute value, 0 counts
            the elements that are not 0.
        dim: the axis of the vectors.
        eps: lower bound of the norm.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis, or `p` is no number.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.normalize(dl.tensor([[3.0, 4.0]])).numpy().round(3).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    _check_tensors("normalize", input)
    check_float("normalize", input)
    return input / clamp_min(vector_norm(input, p, dim, keepdim=True), eps)


def _normalize_last_axes(
    name: str, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, *, center: bool
) -> Any:
    """Normalises over the last axes, as rows of :func:`grouped_norm`."""
    _check_tensors(name, input, weight, bias)
    sizes = strides.sizes(name, (normalized_shape,))
    if not sizes or input.shape[len(input.shape) - len(sizes) :] != sizes or len(sizes) > len(input.shape):
        raise ShapeError(f"[{name}] expected an input of shape (..., {str(sizes)[1:-1]}), got {input.shape}")
    for operand, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != sizes:
            raise ShapeError(f"[{name}] {operand} must have shape {sizes}, got {tensor.shape}")
    check_parameters(name, input, weight, bias)
    columns = math.prod(sizes)
    rows = in_shape(input, math.prod(input.shape[: len(input.shape) - len(sizes)]), columns)
    weight = None if weight is None else in_shape(weight, columns)
    bias = None if bias is None else in_shape(bias, columns)
    return in_shape(grouped_norm(rows, weight, bias, eps=eps, center=center), *input.shape)


def _check_tensors(name: str, *operands: Any) -> None:
    """Raise unless the first operand is a tensor and each other one a tensor or None.

    Raises:
        DTypeError
    """
    for position, operand in enumerate(operands):
        if not isinstance(operand, TensorBase) and (operand is not None or position == 0):
            raise DTypeError(
                f"[{name}] expected a tensor, got {type(operand).__name__}; make one with dl.tensor(...)"
            )


def _check_operands(
    name: str, input: Any, operands: dict[str, TensorBase | None], *, needs_running: bool
) -> None:
    """Raise unless operands have one element for each channel, and running statistics are there if needed.

    Raises:
        ShapeError, DTypeError, ArgumentError
    """
    _check_tensors(name, input, *operands.values())
    check_channels(name, input, **operands)
    if (operands["running_mean"] is None) != (operands["running_var"] is None):
        raise ArgumentError(f"[{name}] running_mean and running_var go together: pass both or neither")
    if needs_running and operands["running_mean"] is None:
        raise ArgumentError(
            f"[{name}] running_mean and running_var are needed, or the input's own statistics"
        )


def update_running(running: Any, value: Any, momentum: float) -> None:
    """Moves running statistics towards a value, in place."""
    copy_(running, running * (1 - momentum) + value * momentum)
