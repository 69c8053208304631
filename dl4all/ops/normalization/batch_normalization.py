"""Ops of batch normalisation: channel statistics, normalising by them, and the gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float, check_parameters
from dl4all.ops.core.dtypes import FLOAT32, widened
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.transcendental import rsqrt
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.normalization import host
from dl4all.ops.normalization.host import along_channels
from dl4all.ops.reduce.channel_sums import (
    STATISTICS_SHADERS,
    SUMS_SHADERS,
    launch_statistics,
    launch_sums,
    vector_width,
)
from dl4all.ops.reduce.sums import sum_to

WORKGROUP = 64

BATCH_NORM_FOLD_PUSH = PushBlock(
    "normalization/batch_norm_fold.comp",
    "uint channels; float eps; uint mean_offset, variance_offset, weight_offset;",
)
BATCH_NORM_PUSH = PushBlock(
    "normalization/batch_norm.comp",
    "uint n, channels, inner, x_offset, bias_offset;",
)
BATCH_NORM_BACKWARD_FOLD_PUSH = PushBlock(
    "normalization/batch_norm_backward_fold.comp",
    "uint channels; float count; uint sums_offset, weight_offset;",
)
BATCH_NORM_BACKWARD_PUSH = PushBlock(
    "normalization/batch_norm_backward.comp",
    "uint n, channels, inner, g_offset, x_offset;",
)
APPLY = {
    (bias, width): shader("normalization/batch_norm.comp", BIAS=int(bias), FOURS=width // 4)
    for bias in (False, True)
    for width in (1, 4)
}
FOLD = {weight: shader("normalization/batch_norm_fold.comp", WEIGHT=int(weight)) for weight in (False, True)}
BACKWARD = {width: shader("normalization/batch_norm_backward.comp", FOURS=width // 4) for width in (1, 4)}
BACKWARD_FOLD = {
    weight: shader("normalization/batch_norm_backward_fold.comp", WEIGHT=int(weight))
    for weight in (False, True)
}


def elements_per_channel(input: TensorBase) -> int:
    """The number of elements of each channel, at least 1, so that it can divide."""
    return max(input.numel() // max(input.shape[1], 1), 1)


def check_channels(name: str, input: TensorBase, **of_channels: TensorBase | None) -> None:
    """Raise unless the input has channels and the other operands have one element for each.

    Beside an input of 16 bits they may be of float32, as parameters are in mixed precision.

    Raises:
        ShapeError, DTypeError
    """
    check_parameters(name, input, *of_channels.values())
    if len(input.shape) < 2:
        raise ShapeError(f"[{name}] expected an input of shape (N, C, ...), got {input.shape}")
    for operand, tensor in of_channels.items():
        if tensor is not None and tensor.shape != (input.shape[1],):
            raise ShapeError(
                f"[{name}] {operand} must have shape ({input.shape[1]},) for an input of shape "
                f"{input.shape}, got {tensor.shape}"
            )


def _fold(mean: TensorBase, var: TensorBase, weight: TensorBase | None, eps: float) -> TensorBase:
    """The device tensor (2, C) of the means and of ``weight / sqrt(var + eps)``."""
    mean, var = contiguous(mean), contiguous(var)
    weight = None if weight is None else contiguous(weight)
    count = mean.numel()
    out: TensorBase = empty(type(mean).result_class, (2, count), FLOAT32, mean.device)
    push = BATCH_NORM_FOLD_PUSH.pack(
        channels=count,
        eps=float(eps),
        mean_offset=mean.offset,
        variance_offset=var.offset,
        weight_offset=0 if weight is None else weight.offset,
    )
    operands = (mean, var) if weight is None else (mean, var, weight)
    run(FOLD[weight is not None], strided_grid(count, WORKGROUP), push, *operands, out)
    return out


# Statistics


def _infer_stats(input: TensorBase) -> Result:
    check_channels("batch_norm_stats", input)
    return (2, input.shape[1]), widened(input.dtype)


def _stats_gradient(g: Any, input: Any, result: Any) -> Any:
    rank, count = len(input.shape), elements_per_channel(input)
    centered = input - along_channels(result[0], rank)
    return along_channels(g[0] / count, rank) + centered * along_channels(g[1] * (2 / count), rank)


@export()
@op(
    infer=_infer_stats,
    kernel=Kernel(launch_statistics, STATISTICS_SHADERS),
    examples=(
        example((2, 5, 7, 3)),
        example((7, 13)),
        example((3, 2, 67)),
        example((3, 5, 12)),
        example((4099, 2)),
        example((3, 2, 1499)),
        example((3, 2, 1500)),
        example((5, 0)),
    ),
    grad=_stats_gradient,
)
def batch_norm_stats(input: Array) -> Array:
    """Mean and variance of each channel.

    Args:
        input: floats of shape (N, C, ...).

    Returns:
        Shape (2, C): the means, and the variances with n in the denominator.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.batch_norm_stats(dl.tensor([[1.0], [5.0]])).tolist()
        [[3.0], [4.0]]
    """
    return host.statistics(input)


# The normalised input


def _infer_apply(
    input: TensorBase,
    mean: TensorBase,
    var: TensorBase,
    weight: TensorBase | None,
    bias: TensorBase | None,
    *,
    eps: float,
) -> Result:
    check_channels("batch_norm_apply", input, mean=mean, var=var, weight=weight, bias=bias)
    return input.shape, input.dtype


def _run_apply(
    out: TensorBase,
    input: TensorBase,
    mean: TensorBase,
    var: TensorBase,
    weight: TensorBase | None,
    bias: TensorBase | None,
    *,
    eps: float,
) -> None:
    x = contiguous(input)
    factors = _fold(mean, var, weight, eps)
    bias = None if bias is None else contiguous(bias)
    elements, channels, inner = out.numel(), x.shape[1], math.prod(x.shape[2:])
    width = vector_width(inner, x)
    words, offset = elements // width, 0 if bias is None else bias.offset
    push = BATCH_NORM_PUSH.pack(
        n=words, channels=channels, inner=inner // width, x_offset=x.offset // width, bias_offset=offset
    )
    operands = (x, factors) if bias is None else (x, factors, bias)
    run(APPLY[bias is not None, width], strided_grid(words, WORKGROUP, out.device), push, *operands, out)


def _apply_gradient(
    g: Any, input: Any, mean: Any, var: Any, weight: Any, eps: float, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    deviation = rsqrt(var + eps)
    scale = deviation if weight is None else deviation * weight
    input_gradient = g * along_channels(scale, len(input.shape)) if needs[0] else None
    if not any(needs[1:]):
        return input_gradient, None, None, None, None
    sums = batch_norm_sums(g, input, mean, var, eps=eps)
    mean_gradient = -sums[0] * scale if needs[1] else None
    var_gradient = sums[1] * scale * deviation * -0.5 if needs[2] else None
    return input_gradient, mean_gradient, var_gradient, sums[1], sums[0]


@export()
@op(
    infer=_infer_apply,
    kernel=Kernel(_run_apply, (*APPLY.values(), *FOLD.values())),
    examples=(
        example((2, 5, 7, 3), (5,), (5,), (5,), (5,)),
        example((3, 7), (7,), (7,), None, None, eps=1e-2),
        example((2, 3, 11), (3,), (3,), (3,), (3,), eps=1e-3),
        example((2, 3, 12), (3,), (3,), (3,), (3,)),
        example((2, 3, 12), (3,), (3,), (3,), None),
        example((2, 3, 5), (3,), (3,), (3,), None),
        example((2, 3, 5), (3,), (3,), None, (3,)),
        example((0, 3, 5), (3,), (3,), (3,), (3,)),
    ),
    grad=_apply_gradient,
)
def batch_norm_apply(
    input: Array,
    mean: Array,
    var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Each channel normalised by the given mean and variance.

    ``(input - mean) / sqrt(var + eps) * weight + bias``, the second half of
    :func:`~dl4all.nn.functional.batch_norm`.

    Args:
        input: floats of shape (N, C, ...).
        mean, var, weight, bias: shape (C,).
        eps: keeps the square root away from 0.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x, mean, var = dl.tensor([[1.0], [5.0]]), dl.tensor([3.0]), dl.tensor([4.0])
        >>> dl.ops.batch_norm_apply(x, mean, var, eps=0.0).tolist()
        [[-1.0], [1.0]]
    """
    scale = 1 / np.sqrt(var + np.asarray(eps, input.dtype))
    if weight is not None:
        scale = scale * weight
    return host.apply(input, mean, scale, bias)


# Sums for the gradients


def _infer_sums(
    grad: TensorBase, input: TensorBase, mean: TensorBase, var: TensorBase, *, eps: float
) -> Result:
    check_channels("batch_norm_sums", input, mean=mean, var=var)
    check_float("batch_norm_sums", grad, input)
    return (2, input.shape[1]), widened(input.dtype)


def _run_sums(
    out: TensorBase, grad: TensorBase, input: TensorBase, mean: TensorBase, var: TensorBase, *, eps: float
) -> None:
    launch_sums(out, grad, input, _fold(mean, var, None, eps))


def _sums_gradient(
    g: Any, grad: Any, input: Any, mean: Any, var: Any, eps: float, result: Any, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    deviation = rsqrt(var + eps)
    scale = g[1] * deviation
    return (
        batch_norm_apply(input, mean, var, g[1], g[0], eps=eps) if needs[0] else None,
        grad * along_channels(scale, len(input.shape)) if needs[1] else None,
        -scale * result[0],
        scale * deviation * result[1] * -0.5,
    )


@export()
@op(
    infer=_infer_sums,
    kernel=Kernel(_run_sums, (*SUMS_SHADERS[False], FOLD[False])),
    examples=(
        example((2, 5, 7, 3), (2, 5, 7, 3), (5,), (5,)),
        example((5, 7), (5, 7), (7,), (7,), eps=1e-3),
        example((3, 2, 5), (3, 2, 5), (2,), (2,)),
        example((3, 5, 12), (3, 5, 12), (5,), (5,)),
        example((4099, 2), (4099, 2), (2,), (2,)),
        example((3, 2, 1499), (3, 2, 1499), (2,), (2,)),
        example((2, 0), (2, 0), (0,), (0,)),
        example((0, 3, 5), (0, 3, 5), (3,), (3,)),
    ),
    grad=_sums_gradient,
)
def batch_norm_sums(grad: Array, input: Array, mean: Array, var: Array, eps: float = 1e-5) -> Array:
    """The gradients of bias and weight of :func:`batch_norm_apply`: sums over each channel.

    Args:
        grad: the result's gradient.
        input, mean, var, eps: the arguments of :func:`batch_norm_apply`.

    Returns:
        Shape (2, C): sums of `grad`, and of `grad` times the normalised input.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x, mean, var = dl.tensor([[1.0], [5.0]]), dl.tensor([3.0]), dl.tensor([4.0])
        >>> dl.ops.batch_norm_sums(dl.tensor([[1.0], [2.0]]), x, mean, var, eps=0.0).tolist()
        [[3.0], [1.0]]
    """
    deviation = 1 / np.sqrt(var + np.asarray(eps, input.dtype))
    return host.gradient_sums(grad, input, mean, deviation)


def _infer_backward(
    grad: TensorBase,
    input: TensorBase,
    mean: TensorBase,
    var: TensorBase,
    sums: TensorBase,
    weight: TensorBase | None,
    *,
    eps: float,
) -> Result:
    check_channels("batch_norm_backward", input, mean=mean, var=var, weight=weight)
    check_float("batch_norm_backward", grad, input)
    check_parameters("batch_norm_backward", input, sums, weight)
    return input.shape, input.dtype


def _run_backward(
    out: TensorBase,
    grad: TensorBase,
    input: TensorBase,
    mean: TensorBase,
    var: TensorBase,
    sums: TensorBase,
    weight: TensorBase | None,
    *,
    eps: float,
) -> None:
    g, x, sums = contiguous(grad), contiguous(input), contiguous(sums)
    weight = None if weight is None else contiguous(weight)
    elements, channels, inner = out.numel(), x.shape[1], math.prod(x.shape[2:])
    mean_and_scale = _fold(mean, var, None, eps)
    factors = empty(type(out), (4, channels), FLOAT32, out.device)
    offset = 0 if weight is None else weight.offset
    operands = (mean_and_scale, sums) if weight is None else (mean_and_scale, sums, weight)
    push = BATCH_NORM_BACKWARD_FOLD_PUSH.pack(
        channels=channels, count=elements / channels, sums_offset=sums.offset, weight_offset=offset
    )
    run(BACKWARD_FOLD[weight is not None], strided_grid(channels, WORKGROUP), push, *operands, factors)
    width = vector_width(inner, g, x)
    words = elements // width
    push = BATCH_NORM_BACKWARD_PUSH.pack(
        n=words,
        channels=channels,
        inner=inner // width,
        g_offset=g.offset // width,
        x_offset=x.offset // width,
    )
    run(BACKWARD[width], strided_grid(words, WORKGROUP, out.device), push, g, x, factors, out)


def _backward_gradient(
    v: Any,
    grad: Any,
    input: Any,
    mean: Any,
    var: Any,
    sums: Any,
    weight: Any,
    eps: float,
    needs: tuple[bool, ...],
) -> tuple[Any, ...]:
    """The result is ``scale * (grad - sums[0] / n - normalised * sums[1] / n)``."""
    rank, channels = len(input.shape), input.shape[1]
    n = elements_per_channel(input)
    channel_shape = (1, channels) + (1,) * (rank - 2)
    deviation = rsqrt(var + eps)
    scale = deviation if weight is None else deviation * weight
    scaled = v * along_channels(scale, rank)
    scaled_sums = batch_norm_sums(scaled, input, mean, var, eps=eps)
    slope = deviation * sums[1] * (-1 / n)  # the derivative of the result by the input, without the scale
    plain = batch_norm_backward(grad, input, mean, var, sums, eps=eps)
    weight_gradient = reshape(sum_to(v * plain, channel_shape), channels)
    var_term = weight_gradient if weight is None else weight_gradient * weight
    return (
        scaled,
        scaled * along_channels(slope, rank),
        -scaled_sums[0] * slope,
        (var_term + scaled_sums[1] * sums[1] * (-1 / n)) * deviation * deviation * -0.5,
        scaled_sums * (-1 / n),
        weight_gradient if needs[5] else None,
    )


@export()
@op(
    infer=_infer_backward,
    kernel=Kernel(_run_backward, (*BACKWARD.values(), *BACKWARD_FOLD.values(), FOLD[False])),
    examples=(
        example((2, 5, 7, 3), (2, 5, 7, 3), (5,), (5,), (2, 5), (5,)),
        example((3, 7), (3, 7), (7,), (7,), (2, 7), None, eps=1e-2),
        example((2, 3, 5), (2, 3, 5), (3,), (3,), (2, 3), (3,)),
        example((2, 3, 12), (2, 3, 12), (3,), (3,), (2, 3), (3,)),
        example((0, 3, 5), (0, 3, 5), (3,), (3,), (2, 3), (3,)),
    ),
    grad=_backward_gradient,
)
def batch_norm_backward(
    grad: Array,
    input: Array,
    mean: Array,
    var: Array,
    sums: Array,
    weight: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """The gradient of batch normalisation by the batch's own mean and variance, with respect to the input.

    Ioffe and Szegedy, arXiv:1502.03167, section 3.

    Args:
        grad: the result's gradient, of the input's shape.
        input, mean, var, weight, eps: the arguments of :func:`batch_norm_apply`.
        sums: shape (2, C), from :func:`batch_norm_sums`.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x, g = dl.tensor([[1.0], [5.0], [3.0]]), dl.tensor([[1.0], [0.0], [0.0]])
        >>> mean, var = dl.ops.batch_norm_stats(x)
        >>> sums = dl.ops.batch_norm_sums(g, x, mean, var)
        >>> dl.ops.batch_norm_backward(g, x, mean, var, sums).shape
        (3, 1)
    """
    n = input.size // max(input.shape[1], 1)
    deviation = 1 / np.sqrt(var + np.asarray(eps, input.dtype))
    scale = deviation if weight is None else deviation * weight
    return host.backward(grad, input, mean, scale, sums[0] / n, sums[1] * deviation / n)
