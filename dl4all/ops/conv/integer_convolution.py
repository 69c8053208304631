"""Convolutions of 8-bit integers, exact, as one product of matrices with sums of 32 bits."""

from __future__ import annotations

import math
from typing import Any

from dl4all.errors import ShapeError
from dl4all.ops.conv.window import Window
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.linalg.integer_product import integer_product
from dl4all.ops.memory.views import contiguous, reshape


def integer_convolution(input: Any, weight: TensorBase, stride: Shape, dilation: Shape) -> Any:
    """The sums of a convolution, without padding. Channels come last, so that windows are runs of bytes.

    Args:
        input: uint8 of shape (N, ..., C).
        weight: int8 of shape (F, ..., C), with as many axes.
        stride, dilation: for each axis between the first and the last.

    Returns:
        int32 of shape (N, ..., F).

    Raises:
        ShapeError: the shapes do not fit, or the window does not fit into the input.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.ops.conv.integer_convolution import integer_convolution
        >>> x = dl.tensor([[[1], [2], [3]]], dtype="uint8", device="cpu")
        >>> w = dl.tensor([[[1], [-1]]], dtype="int8", device="cpu")
        >>> integer_convolution(x, w, (1,), (1,)).tolist()
        [[[-1], [-1]]]
    """
    kernel, none = weight.shape[1:-1], (0,) * len(stride)
    if len(input.shape) != len(weight.shape) or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"[integer_convolution] expected an input with {weight.shape[-1]} channels and {len(kernel)} "
            f"axes between samples and channels, got {input.shape}"
        )
    sizes = Window(kernel, stride, none, none, dilation).output_size(input.shape[1:-1])
    if min(sizes) < 1:
        raise ShapeError(
            f"[integer_convolution] a window of {kernel} with dilation {dilation} does not fit into an input "
            f"of {input.shape}, which includes its padding"
        )
    input = contiguous(input)
    (n, *_, channels), (step, *steps, _) = input.shape, input.strides
    moves = tuple(one * each for one, each in zip(steps, stride, strict=True))
    inside = tuple(one * each for one, each in zip(steps, dilation, strict=True))
    windows = input.strided_view((n, *sizes, *kernel, channels), (step, *moves, *inside, 1), input.offset)
    terms = math.prod(weight.shape[1:])
    columns = reshape(windows, n * math.prod(sizes), terms)
    sums = integer_product(columns, reshape(weight, weight.shape[0], terms))
    return reshape(sums, n, *sizes, weight.shape[0])
