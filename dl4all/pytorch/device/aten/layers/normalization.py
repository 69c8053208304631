"""Batch, group and layer normalisation, and their gradients.

PyTorch keeps ``1 / sqrt(var + eps)`` between forward and backward, where dl4all keeps the variance. Operands
of several dtypes, which AMP gives, are computed with in the widest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all import ops
from dl4all.ops.core.dtypes import promoted
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.memory.copy import new_like, overwrite
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative
from dl4all.tensor.tensor import Tensor

Optional = Tensor | None


def _widened(*operands: Any) -> list[Any]:
    """The operands in the widest of their dtypes."""
    dtypes = {x.dtype for x in operands if x is not None}
    if len(dtypes) == 1:
        return list(operands)
    wide = functools.reduce(promoted, dtypes).name
    return [None if x is None else _cast(x, wide) for x in operands]


def _cast(x: Any, dtype: Any) -> Any:
    return x if x is None or x.dtype == dtype else ops.cast(x, np.dtype(dtype).name)


# Over the last axes, and over groups of channels


def _rows(x: Tensor, normalized_shape: Sequence[int]) -> tuple[Any, Shape]:
    """The operand as a matrix, and the shape that the statistics of its rows have in PyTorch.

    Raises:
        NotNative: there is nothing to normalise, or the shapes do not fit.
    """
    sizes = tuple(normalized_shape)
    kept = x.shape[: len(x.shape) - len(sizes)]
    if not sizes or x.shape != kept + sizes or 0 in sizes:
        raise NotNative(f"a normalization of {sizes} in {x.shape}")
    return ops.reshape(x, math.prod(kept), math.prod(sizes)), kept + (1,) * len(sizes)


def _flat(x: Optional) -> Any:
    return None if x is None else ops.reshape(x, x.numel())


def layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> Any:
    dtype = x.dtype
    x, weight, bias = _widened(x, weight, bias)
    rows, shape = _rows(x, normalized_shape)
    result = ops.grouped_norm(rows, _flat(weight), _flat(bias), eps=eps)
    mean, scale = ops.grouped_norm_statistics(rows, eps=eps)
    statistics = (_cast(ops.reshape(one, shape), x.dtype) for one in (mean, scale))
    return _cast(ops.reshape(result, x.shape), dtype), *statistics


def group_norm(
    x: Tensor,
    weight: Optional,
    bias: Optional,
    count: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> Any:
    if 0 in x.shape[1:]:
        raise NotNative("a normalization of rows without elements")
    dtype = x.dtype
    x, weight, bias = _widened(x, weight, bias)
    result = ops.grouped_norm(x, weight, bias, groups=groups, eps=eps)
    mean, scale = ops.grouped_norm_statistics(x, groups=groups, eps=eps)
    statistics = (_cast(ops.reshape(one, count, groups), x.dtype) for one in (mean, scale))
    return _cast(result, dtype), *statistics


def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    scale: Tensor,
    weight: Optional,
    bias: Optional,
    needed: Sequence[bool],
) -> Any:
    dtypes = x.dtype, x.dtype if weight is None else weight.dtype
    shape = tuple(normalized_shape)
    grad, x, mean, scale, weight = _widened(grad, x, mean, scale, weight)
    rows, _ = _rows(x, normalized_shape)
    grads = ops.reshape(grad, rows.shape)
    statistics = _statistics(mean, scale)
    input_gradient = sums = None
    if needed[0]:
        scaled = grads if weight is None else ops.mul(grads, _flat(weight))
        input_gradient = ops.normalized_backward(scaled, rows, statistics)
        input_gradient = _cast(ops.reshape(input_gradient, x.shape), dtypes[0])
    if any(needed[1:]):
        sums = _cast(ops.reshape(ops.normalized_sums(grads, rows, statistics), 2, *shape), dtypes[1])
    return input_gradient, *_of_sums(sums, needed)


def group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    scale: Tensor,
    weight: Optional,
    count: int,
    channels: int,
    inner: int,
    groups: int,
    needed: Sequence[bool],
) -> Any:
    if 0 in x.shape[1:]:
        raise NotNative("a normalization of rows without elements")
    dtypes = x.dtype, x.dtype if weight is None else weight.dtype
    grad, x, mean, scale, weight = _widened(grad, x, mean, scale, weight)
    statistics = _statistics(mean, scale)
    input_gradient = sums = None
    if needed[0]:
        scaled = grad if weight is None else ops.mul(grad, _along_channels(weight, x))
        input_gradient = _cast(ops.normalized_backward(scaled, x, statistics, groups=groups), dtypes[0])
    if any(needed[1:]):
        sums = _cast(ops.normalized_sums(grad, x, statistics, groups=groups), dtypes[1])
    return input_gradient, *_of_sums(sums, needed)


def _statistics(mean: Any, scale: Any) -> Any:
    return ops.stack([_flat(mean), _flat(scale)])


def _along_channels(values: Any, x: Any) -> Any:
    return ops.reshape(values, -1, *(1,) * (len(x.shape) - 2))


def _of_sums(sums: Any, needed: Sequence[bool]) -> tuple[Any, Any]:
    """The gradients of weight and bias."""
    return sums[1] if needed[1] else None, sums[0] if needed[2] else None


declare("native_layer_norm", layer_norm)
declare("native_layer_norm_backward", layer_norm_backward)
declare("native_group_norm", group_norm)
declare("native_group_norm_backward", group_norm_backward)

# By channels


def batch_norm(
    x: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The normalised batch, and the mean and scale of each channel; changes the running statistics.

    Raises:
        NotNative: there is nothing to normalise.
    """
    if 0 in x.shape or len(x.shape) < 2:
        raise NotNative("a normalization of no elements")
    if not training and (running_mean is None or running_var is None):
        raise NotNative("there are no running statistics")
    dtype = x.dtype
    wide, weight, bias, *running = _widened(x, weight, bias, running_mean, running_var)
    if not training:
        result = ops.batch_norm_apply(wide, running[0], running[1], weight, bias, eps=eps)
        nothing = ops.contiguous(ops.narrow(running[0], 0, 0, 0))
        return _cast(result, dtype), nothing, ops.clone(nothing)
    stats = ops.batch_norm_stats(wide)
    mean, var = stats[0], stats[1]
    result = ops.batch_norm_apply(wide, mean, var, weight, bias, eps=eps)
    count = x.numel() // x.shape[1]
    if running_mean is not None:
        _move(running_mean, running[0], mean, momentum)
    if running_var is not None:
        unbiased = ops.mul(var, count / (count - 1) if count > 1 else math.nan)
        _move(running_var, running[1], unbiased, momentum)
    statistics = (_cast(one, wide.dtype) for one in (mean, ops.rsqrt(ops.add(var, eps))))
    return _cast(result, dtype), *statistics


def _move(target: Any, running: Any, value: Any, momentum: float) -> None:
    """Move running statistics towards those of a batch, in place."""
    overwrite(target, ops.lerp(running, value, momentum))


def batch_norm_in_training(
    x: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    momentum: float,
    eps: float,
) -> Any:
    """As :func:`batch_norm`, and room for what a vendor's library keeps: nothing."""
    results = batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*results, new_like(x, (0,), np.dtype(np.uint8)))


declare("native_batch_norm", batch_norm)
declare("_native_batch_norm_legit", batch_norm)
declare("_batch_norm_with_update", batch_norm_in_training)
declare(
    "_native_batch_norm_legit.no_stats",
    lambda x, weight, bias, training, momentum, eps: batch_norm(
        x, weight, bias, None, None, True, momentum, eps
    ),
)
declare(
    "_native_batch_norm_legit_no_training",
    lambda x, weight, bias, mean, var, momentum, eps: batch_norm(
        x, weight, bias, mean, var, False, momentum, eps
    ),
)


def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    mean: Optional,
    scale: Optional,
    training: bool,
    eps: float,
    needed: Sequence[bool],
) -> Any:
    if 0 in x.shape:
        raise NotNative("a normalization of no elements")
    dtype, of_channels = x.dtype, x.dtype if weight is None else weight.dtype
    if training:
        grad, x, weight, mean, scale = _widened(grad, x, weight, mean, scale)
        var, eps = ops.pow(scale, -2.0), 0.0
    else:
        grad, x, weight, mean, var = _widened(grad, x, weight, running_mean, running_var)
    sums: Any = None
    if training or any(needed[1:]):
        sums = ops.batch_norm_sums(grad, x, mean, var, eps=eps)
    input_gradient = None
    if needed[0] and training:
        input_gradient = ops.batch_norm_backward(grad, x, mean, var, sums, weight, eps=eps)
    elif needed[0]:
        factor = ops.rsqrt(ops.add(var, eps))
        factor = factor if weight is None else ops.mul(factor, weight)
        input_gradient = ops.mul(grad, _along_channels(factor, x))
    return (
        None if input_gradient is None else _cast(input_gradient, dtype),
        _cast(sums[1], of_channels) if needed[1] else None,
        _cast(sums[0], of_channels) if needed[2] else None,
    )


declare("native_batch_norm_backward", batch_norm_backward)
declare("batch_norm_backward", lambda *operands: batch_norm_backward(*operands[:-1]))
