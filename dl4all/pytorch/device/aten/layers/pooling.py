"""Pooling and unpooling of signals, images and volumes, with or without an axis of samples.

Gradients of max pooling find the maxima again in the input: dl4all's kernels do so faster than they read
PyTorch's indices of 8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dl4all import autograd, ops
from dl4all.errors import ShapeError
from dl4all.ops.indexing.gather_scatter import expanded_number
from dl4all.ops.pool.max_pool import max_pooling
from dl4all.ops.pool.windows import Pooling, adaptive, sliding
from dl4all.pytorch.device.dispatch.registration import declare

Sizes = Sequence[int]


def samples(tensor: Any, axes: int) -> Any:
    """The tensor with an axis of samples in front of its channels and `axes` further axes.

    Raises:
        ShapeError: it has another number of axes.
    """
    if len(tensor.shape) not in (axes + 1, axes + 2):
        raise ShapeError(f"[pooling] expected {axes + 1} or {axes + 2} axes, got shape {tensor.shape}")
    return tensor if len(tensor.shape) == axes + 2 else ops.reshape(tensor, (1, *tensor.shape))


def like(result: Any, tensor: Any) -> Any:
    """A result for :func:`samples` of a tensor, without the axis that the tensor does not have."""
    return result if len(result.shape) == len(tensor.shape) else ops.reshape(result, result.shape[1:])


# Max pooling


def max_pool2d_with_indices(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Any, Any]:
    window = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode
    values, indices = ops.max_pool2d_with_indices(samples(input, 2), *window)
    return like(values, input), like(indices, input)


def max_pool2d_with_indices_backward(
    grad: Any,
    input: Any,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    window = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode
    return _max_pool_backward(grad, input, max_pooling(input.shape, *window))


def adaptive_max_pool2d(input: Any, output_size: Sizes) -> tuple[Any, Any]:
    values, indices = ops.adaptive_max_pool2d_with_indices(samples(input, 2), tuple(output_size))
    return like(values, input), like(indices, input)


def adaptive_max_pool2d_backward(grad: Any, input: Any, indices: Any) -> Any:
    pooling = adaptive("adaptive_max_pool2d", input.shape, grad.shape[-2:])
    return _max_pool_backward(grad, input, pooling)


def _max_pool_backward(grad: Any, input: Any, pooling: Pooling) -> Any:
    return like(ops.max_pool_backward(samples(grad, 2), samples(input, 2), pooling=pooling), input)


def max_pool3d_with_indices(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Any, Any]:
    window = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode
    values, indices = ops.max_pool3d_with_indices(input, *window)
    return values, indices


def max_pool3d_with_indices_backward(
    grad: Any,
    input: Any,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    window = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), ceil_mode
    return autograd.vjp(lambda x: ops.max_pool3d(x, *window), input, grad)[1]


def adaptive_max_pool3d(input: Any, output_size: Sizes) -> tuple[Any, Any]:
    values, indices = ops.adaptive_max_pool3d_with_indices(input, tuple(output_size))
    return values, indices


def adaptive_max_pool3d_backward(grad: Any, input: Any, indices: Any) -> Any:
    size = grad.shape[-3:]
    return autograd.vjp(lambda x: ops.adaptive_max_pool3d(x, size), input, grad)[1]


def max_unpool2d(input: Any, indices: Any, output_size: Sizes) -> Any:
    return _max_unpool(input, indices, tuple(output_size), 2)


def max_unpool3d(input: Any, indices: Any, output_size: Sizes, stride: Sizes, padding: Sizes) -> Any:
    return _max_unpool(input, indices, tuple(output_size), 3)


def _max_unpool(input: Any, indices: Any, size: tuple[int, ...], axes: int) -> Any:
    if len(input.shape) not in (axes + 1, axes + 2) or input.shape != indices.shape or len(size) != axes:
        raise ShapeError(f"[max_unpool] {input.shape}, {indices.shape} and {size} do not fit each other")
    planes, count = math.prod(input.shape[:-axes]), math.prod(input.shape[-axes:])
    zeros = expanded_number(input, 0, (planes, math.prod(size)))
    rows = ops.reshape(indices, (planes, count)), ops.reshape(input, (planes, count))
    return ops.reshape(ops.scatter(zeros, 1, *rows), (*input.shape[:-axes], *size))


# Average pooling


def avg_pool2d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    window = tuple(kernel_size), tuple(stride), tuple(padding), ceil_mode, count_include_pad, divisor_override
    return like(ops.avg_pool2d(samples(input, 2), *window), input)


def avg_pool2d_backward(
    grad: Any,
    input: Any,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    window = tuple(kernel_size), tuple(stride), tuple(padding), 1, ceil_mode, count_include_pad
    pooling = sliding("avg_pool2d", input.shape, *window, divisor_override)
    return like(ops.avg_pool_backward(samples(grad, 2), pooling=pooling), input)


def adaptive_avg_pool2d(input: Any, output_size: Sizes) -> Any:
    return like(ops.adaptive_avg_pool2d(samples(input, 2), tuple(output_size)), input)


def adaptive_avg_pool2d_backward(grad: Any, input: Any) -> Any:
    pooling = adaptive("adaptive_avg_pool2d", input.shape, grad.shape[-2:])
    return like(ops.avg_pool_backward(samples(grad, 2), pooling=pooling), input)


def avg_pool3d(
    input: Any,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    window = tuple(kernel_size), tuple(stride), tuple(padding), ceil_mode, count_include_pad, divisor_override
    return ops.avg_pool3d(input, *window)


def avg_pool3d_backward(grad: Any, input: Any, *window: Any) -> Any:
    return autograd.vjp(lambda x: avg_pool3d(x, *window), input, grad)[1]


def adaptive_avg_pool3d(input: Any, output_size: Sizes) -> Any:
    return ops.adaptive_avg_pool3d(input, tuple(output_size))


def adaptive_avg_pool3d_backward(grad: Any, input: Any) -> Any:
    size = grad.shape[-3:]
    return autograd.vjp(lambda x: ops.adaptive_avg_pool3d(x, size), input, grad)[1]


POOLINGS: dict[str, Callable[..., Any]] = {
    "max_pool2d_with_indices": max_pool2d_with_indices,
    "max_pool2d_with_indices_backward": max_pool2d_with_indices_backward,
    "max_pool3d_with_indices": max_pool3d_with_indices,
    "max_pool3d_with_indices_backward": max_pool3d_with_indices_backward,
    "adaptive_max_pool2d": adaptive_max_pool2d,
    "adaptive_max_pool2d_backward": adaptive_max_pool2d_backward,
    "adaptive_max_pool3d": adaptive_max_pool3d,
    "adaptive_max_pool3d_backward": adaptive_max_pool3d_backward,
    "max_unpool2d": max_unpool2d,
    "max_unpool3d": max_unpool3d,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_backward": avg_pool2d_backward,
    "avg_pool3d": avg_pool3d,
    "avg_pool3d_backward": avg_pool3d_backward,
    "_adaptive_avg_pool2d": adaptive_avg_pool2d,
    "_adaptive_avg_pool2d_backward": adaptive_avg_pool2d_backward,
    "_adaptive_avg_pool3d": adaptive_avg_pool3d,
    "_adaptive_avg_pool3d_backward": adaptive_avg_pool3d_backward,
}

CONTIGUOUS = ("unpool", "adaptive_max_pool3d", "avg_pool3d")
"""Parts of the names of ops whose results are contiguous; others have the input's memory format."""

for _name, _function in POOLINGS.items():
    _keeps = not any(part in _name for part in CONTIGUOUS)
    declare(_name, _function, format_of=int(_name.endswith("_backward")) if _keeps else None)
