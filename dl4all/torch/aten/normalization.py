"""Batch, group and layer normalisation, and their gradients.

PyTorch keeps ``1 / sqrt(var + eps)`` between forward and backward, where dl4all keeps the variance. Operands of
several dtypes, which AMP gives, are computed with in the widest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dl4all import ops
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.memory.copy import copy_into
from dl4all.torch.memory import NotNative, tensor, wrap
from dl4all.torch.registration import declare, native

Optional = TensorBase | None


def _widened(*operands: Any) -> list[Any]:
    """The operands in the widest of their dtypes."""
    dtypes = {x.dtype for x in operands if x is not None}
    if len(dtypes) == 1:
        return list(operands)
    wide = np.result_type(*dtypes).name
    return [None if x is None else _cast(x, wide) for x in operands]


def _cast(x: Any, dtype: Any) -> Any:
    return x if x is None or x.dtype == dtype else ops.cast(x, np.dtype(dtype).name)


# Over the last axes, and over groups of channels


def _rows(x: TensorBase, normalized_shape: Sequence[int]) -> tuple[Any, Shape]:
    """The operand as a matrix, and the shape that the statistics of its rows have in PyTorch.

    Raises:
        NotNative: there is nothing to normalise, or the shapes do not fit.
    """
    sizes = tuple(normalized_shape)
    kept = x.shape[: len(x.shape) - len(sizes)]
    if not sizes or x.shape != kept + sizes or 0 in x.shape:
        raise NotNative(f"a normalization of {sizes} in {x.shape}")
    return ops.reshape(x, math.prod(kept), math.prod(sizes)), kept + (1,) * len(sizes)


def _flat(x: Optional) -> Any:
    return None if x is None else ops.reshape(x, x.numel())


def layer_norm(
    x: TensorBase, normalized_shape: Sequence[int], weight: Optional, bias: Optional, eps: float
) -> Any:
    dtype = x.dtype
    x, weight, bias = _widened(x, weight, bias)
    rows, shape = _rows(x, normalized_shape)
    result = ops.grouped_norm(rows, _flat(weight), _flat(bias), eps=eps)
    mean, scale = ops.grouped_norm_statistics(rows, eps=eps)
    return _cast(ops.reshape(result, x.shape), dtype), ops.reshape(mean, shape), ops.reshape(scale, shape)


def group_norm(
    x: TensorBase,
    weight: Optional,
    bias: Optional,
    count: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> Any:
    if 0 in x.shape:
        raise NotNative("a normalization of no elements")
    dtype = x.dtype
    x, weight, bias = _widened(x, weight, bias)
    result = ops.grouped_norm(x, weight, bias, groups=groups, eps=eps)
    mean, scale = ops.grouped_norm_statistics(x, groups=groups, eps=eps)
    return _cast(result, dtype), ops.reshape(mean, count, groups), ops.reshape(scale, count, groups)


def _rows_backward(
    grad: Any, x: Any, mean: Any, scale: Any, weight: Any, needed: Sequence[bool]
) -> tuple[Any, Any]:
    """The gradients of rows by their given statistics, and of the elements by which they were multiplied.

    Rows are to batch normalisation what channels are: it takes the statistics as they are.

    Args:
        grad, x: shape (1, rows, columns).
        mean, scale: one for each row.
        weight: broadcasts to the gradient.
        needed: whether the gradient of x is, and that of the weight.

    Returns:
        The gradient of x, and the gradient times the normalised rows.
    """
    mean, scale = _flat(mean), _flat(scale)
    var = ops.pow(scale, -2.0)
    input_gradient = products = None
    if needed[0]:
        scaled = grad if weight is None else ops.mul(grad, weight)
        sums = ops.batch_norm_sums(scaled, x, mean, var, eps=0.0)
        input_gradient = ops.batch_norm_backward(scaled, x, mean, var, sums, eps=0.0)
    if needed[1]:
        products = ops.mul(grad, ops.batch_norm_apply(x, mean, var, eps=0.0))
    return input_gradient, products


def layer_norm_backward(
    grad: TensorBase,
    x: TensorBase,
    normalized_shape: Sequence[int],
    mean: TensorBase,
    scale: TensorBase,
    weight: Optional,
    bias: Optional,
    needed: Sequence[bool],
) -> Any:
    dtypes = x.dtype, None if weight is None else weight.dtype
    shape = tuple(normalized_shape)
    grad, x, mean, scale, weight = _widened(grad, x, mean, scale, weight)
    rows = ops.unsqueeze(_rows(x, normalized_shape)[0], 0)
    grads = ops.reshape(grad, rows.shape)
    input_gradient, products = _rows_backward(
        grads, rows, mean, scale, _flat(weight), (needed[0], needed[1] and weight is not None)
    )
    columns = rows.shape[2:]
    return (
        None if input_gradient is None else _cast(ops.reshape(input_gradient, x.shape), dtypes[0]),
        None if products is None else _cast(ops.reshape(ops.sum_to(products, columns), shape), dtypes[1]),
        _cast(ops.reshape(ops.sum_to(grads, columns), shape), dtypes[1] or dtypes[0]) if needed[2] else None,
    )


def group_norm_backward(
    grad: TensorBase,
    x: TensorBase,
    mean: TensorBase,
    scale: TensorBase,
    weight: Optional,
    count: int,
    channels: int,
    inner: int,
    groups: int,
    needed: Sequence[bool],
) -> Any:
    if 0 in x.shape:
        raise NotNative("a normalization of no elements")
    shape, dtypes = x.shape, (x.dtype, None if weight is None else weight.dtype)
    grad, x, mean, scale, weight = _widened(grad, x, mean, scale, weight)
    grads = ops.reshape(grad, count, channels, inner)
    scaled = grads if weight is None else ops.mul(grads, ops.reshape(weight, channels, 1))
    rows = (1, count * groups, channels // groups * inner)
    input_gradient, _ = _rows_backward(
        ops.reshape(scaled, rows), ops.reshape(x, rows), mean, scale, None, (needed[0], False)
    )
    _, products = _rows_backward(
        ops.reshape(grads, rows), ops.reshape(x, rows), mean, scale, None, (False, needed[1])
    )
    channel_shape = (1, channels, 1)

    def of_channels(values: Any) -> Any:
        sums = ops.sum_to(ops.reshape(values, count, channels, inner), channel_shape)
        return _cast(ops.reshape(sums, channels), dtypes[1] or dtypes[0])

    return (
        None if input_gradient is None else _cast(ops.reshape(input_gradient, shape), dtypes[0]),
        None if products is None else of_channels(products),
        of_channels(grads) if needed[2] else None,
    )


declare("native_layer_norm", layer_norm)
declare("native_layer_norm_backward", layer_norm_backward)
declare("native_group_norm", group_norm)
declare("native_group_norm_backward", group_norm_backward)

# By channels


def batch_norm(
    x: TensorBase,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, Any, Any]:
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
    return _cast(result, dtype), mean, ops.rsqrt(ops.add(var, eps))


def _move(target: Any, running: Any, value: Any, momentum: float) -> None:
    """Move running statistics towards those of a batch, in place."""
    copy_into(target, ops.lerp(running, value, momentum))


def _optional(value: torch.Tensor | None) -> Any:
    return None if value is None else tensor(value)


@native("native_batch_norm", "_native_batch_norm_legit", plans=True)
def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    operands = (tensor(x), *map(_optional, (weight, bias, running_mean, running_var)))
    return tuple(map(wrap, batch_norm(*operands, training, momentum, eps)))


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
    grad: TensorBase,
    x: TensorBase,
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
    sums = ops.batch_norm_sums(grad, x, mean, var, eps=eps) if training or any(needed[1:]) else None
    input_gradient = None
    if needed[0] and training:
        input_gradient = ops.batch_norm_backward(grad, x, mean, var, sums, weight, eps=eps)
    elif needed[0]:
        factor = ops.rsqrt(ops.add(var, eps))
        factor = factor if weight is None else ops.mul(factor, weight)
        input_gradient = ops.mul(grad, ops.reshape(factor, -1, *(1,) * (len(x.shape) - 2)))
    return (
        None if input_gradient is None else _cast(input_gradient, dtype),
        _cast(sums[1], of_channels) if needed[1] else None,
        _cast(sums[0], of_channels) if needed[2] else None,
    )


declare("native_batch_norm_backward", batch_norm_backward)
