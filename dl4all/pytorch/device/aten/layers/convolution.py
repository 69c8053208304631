"""Convolutions, transposed ones too, and their gradients.

PyTorch calls the two ``overrideable`` ops for devices other than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dl4all import ops
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.pytorch.device.dispatch.registration import LIBRARY, native
from dl4all.pytorch.device.storage.memory import NotNative, tensor, wrap

CONVOLUTIONS: dict[int, Callable[..., Any]] = {3: ops.conv1d, 4: ops.conv2d, 5: ops.conv3d}
"""By the number of the input's axes."""

Window = tuple[Sequence[int], Sequence[int], Sequence[int], int]
"""Strides, padding, dilations and the number of groups."""


def convolve(input: TensorBase, weight: TensorBase, bias: TensorBase | None, window: Window) -> Any:
    """The convolution along one to three axes."""
    if len(input.shape) not in CONVOLUTIONS:
        raise NotNative(f"a convolution of shape {input.shape}")
    return CONVOLUTIONS[len(input.shape)](input, weight, bias, *window)


def extended(input: Any, output_padding: Sequence[int], stride: Sequence[int]) -> Any:
    """The input of a transposed convolution with zeros behind it for output padding of whole steps."""
    behind = [extra // step for extra, step in zip(output_padding, stride, strict=True)]
    if not any(behind):
        return input
    return ops.pad(input, tuple(n for count in reversed(behind) for n in (0, count)))


def transposed_size(
    size: Shape, kernel: Shape, output_padding: Sequence[int], window: Window
) -> tuple[int, ...]:
    """The sizes of a transposed convolution's result for an :func:`extended` input of `size`."""
    stride, padding, dilation, _ = window
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + extra % s + 1
        for n, s, p, d, k, extra in zip(size, stride, padding, dilation, kernel, output_padding, strict=True)
    )


@native("convolution_overrideable", plans=True)
def convolution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    x, w = tensor(input), tensor(weight)
    b = None if bias is None else tensor(bias)
    window = tuple(stride), tuple(padding), tuple(dilation), groups
    if not transposed:
        return wrap(convolve(x, w, b, window))
    x = extended(x, output_padding, stride)
    size = transposed_size(x.shape[2:], w.shape[2:], output_padding, window)
    result = ops.conv_input(x, w, size, *window)
    if b is not None:
        result = ops.add(result, ops.reshape(b, -1, *(1,) * len(size)))
    return wrap(result)


@native("convolution_backward_overrideable", plans=True)
def convolution_backward(
    grad: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of input, weight and bias that the mask asks for; None for the others."""
    g, x, w = tensor(grad), tensor(input), tensor(weight)
    window = tuple(stride), tuple(padding), tuple(dilation), groups
    kernel = w.shape[2:]
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        if transposed:
            of_input = convolve(g, w, None, window)
            of_input = of_input[tuple(slice(size) for size in x.shape)]
        else:
            of_input = ops.conv_input(g, w, x.shape[2:], *window)
    if output_mask[1]:
        image, gradient = (g, extended(x, output_padding, stride)) if transposed else (x, g)
        of_weight = ops.conv_weight(gradient, image, kernel, *window)
    if output_mask[2]:
        of_bias = ops.sum(g, (0, *range(2, len(g.shape))))
    return tuple(None if one is None else wrap(one) for one in (of_input, of_weight, of_bias))


def convolution_on_cpu(*args: Any) -> Any:
    return torch.ops.aten.convolution.default(*args)


def convolution_backward_on_cpu(
    grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, *args: Any
) -> Any:
    *window, output_mask = args
    transposed, groups = window[3], window[5]
    filters = weight.shape[1] * groups if transposed else weight.shape[0]
    return torch.ops.aten.convolution_backward.default(grad, input, weight, [filters], *window, output_mask)


# ATen has no kernels of these for the CPU, on which the fallback calls them.
LIBRARY.impl("convolution_overrideable", convolution_on_cpu, "CPU")
LIBRARY.impl("convolution_backward_overrideable", convolution_backward_on_cpu, "CPU")
