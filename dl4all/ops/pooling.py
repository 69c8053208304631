"""Pooling over the last two axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.base import Array, TensorBase
from dl4all.ops.launch import pack, run, shader, spread
from dl4all.ops.memory import contiguous
from dl4all.ops.op import Kernel, Result, example, op
from dl4all.ops.window import Window, check_images, pair, placed, window

WORKGROUP = 64
MAX_POOL = shader("pool/max_pool2d.comp")
ADAPTIVE_AVG_POOL = shader("pool/adaptive_avg_pool2d.comp")


def _max_pool_window(kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    win = window("max_pool2d", kernel_size, kernel_size if stride is None else stride, padding, dilation)
    if win.padding_h > win.kernel_h // 2 or win.padding_w > win.kernel_w // 2:
        raise ArgumentError(
            f"[max_pool2d] padding {padding!r} is more than half of kernel_size {kernel_size!r}"
        )
    return win


def _max_pool_shape(
    input: TensorBase, *, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> Result:
    check_images("max_pool2d", input)
    win = _max_pool_window(kernel_size, stride, padding, dilation)
    return (*input.shape[:2], *placed("max_pool2d", input.shape, win)), input.dtype


def _max_pool_run(
    out: TensorBase, input: TensorBase, *, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> None:
    win = _max_pool_window(kernel_size, stride, padding, dilation)
    x = contiguous(input)
    push = pack(out.numel(), x.offset, *x.shape[2:], *out.shape[2:], *win)
    run(MAX_POOL, spread(out.numel(), WORKGROUP), push, x, out)


@op(
    infer=_max_pool_shape,
    kernel=Kernel(_max_pool_run, (MAX_POOL,)),
    examples=(
        example((2, 3, 13, 11), kernel_size=3, stride=2, padding=1),
        example((1, 2, 7, 9), kernel_size=(2, 3), stride=None),
        example((2, 1, 11, 17), kernel_size=(3, 2), stride=(1, 3), padding=(1, 0), dilation=(2, 3)),
        example((1, 1, 1, 1), kernel_size=1),
        example((0, 3, 5, 5), kernel_size=2),
    ),
)
def max_pool2d(
    input: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1
) -> Array:
    """The largest element in each window; the padding never wins, nan always does.

    Args:
        input: floats of shape (N, C, H, W).
        kernel_size, stride, padding, dilation: one int for both axes or a pair (vertical,
            horizontal). The stride is the kernel size unless given.

    Returns:
        Shape (N, C, OH, OW), OH = (H + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1.

    Raises:
        ShapeError: the input is not 4-d or the window does not fit into it.
        ArgumentError: a size is not an int or too small, or the padding exceeds half the window.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.max_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 2).tolist()
        [[[[4.0]]]]
    """
    win = _max_pool_window(kernel_size, stride, padding, dilation)
    ph, pw = win.padding_h, win.padding_w
    padded = np.pad(input, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=-np.inf)
    height, width = win.output_size(*input.shape[2:])
    result = np.full((*input.shape[:2], height, width), -np.inf, input.dtype)
    for i in range(win.kernel_h):
        for j in range(win.kernel_w):
            top, left = i * win.dilation_h, j * win.dilation_w
            rows = slice(top, top + (height - 1) * win.stride_h + 1, win.stride_h)
            columns = slice(left, left + (width - 1) * win.stride_w + 1, win.stride_w)
            np.maximum(result, padded[:, :, rows, columns], out=result)
    return result


def _adaptive_shape(input: TensorBase, *, output_size: Any) -> Result:
    check_images("adaptive_avg_pool2d", input)
    size = pair("adaptive_avg_pool2d", "output_size", output_size, 1)
    if 0 in input.shape[2:]:
        raise ArgumentError(f"[adaptive_avg_pool2d] there is nothing to average in shape {input.shape}")
    return (*input.shape[:2], *size), input.dtype


def _adaptive_run(out: TensorBase, input: TensorBase, *, output_size: Any) -> None:
    x = contiguous(input)
    push = pack(out.numel(), x.offset, *x.shape[2:], *out.shape[2:])
    run(ADAPTIVE_AVG_POOL, spread(out.numel(), WORKGROUP), push, x, out)


@op(
    infer=_adaptive_shape,
    kernel=Kernel(_adaptive_run, (ADAPTIVE_AVG_POOL,)),
    examples=(
        example((2, 5, 7, 7), output_size=1),
        example((2, 3, 13, 11), output_size=(3, 5)),
        example((1, 2, 3, 2), output_size=(5, 7)),
        example((0, 3, 5, 5), output_size=1),
    ),
)
def adaptive_avg_pool2d(input: Array, output_size: Any) -> Array:
    """Means over windows that cut the input into `output_size` parts; size 1 is the global mean.

    Args:
        input: floats of shape (N, C, H, W).
        output_size: an int for both axes or a pair (OH, OW). Part i of OH covers the rows from
            floor(i H / OH) up to ceil((i + 1) H / OH).

    Returns:
        Shape (N, C, OH, OW).

    Raises:
        ShapeError: the input is not 4-d.
        ArgumentError: the size is not positive, or the input has no pixels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_avg_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 1).tolist()
        [[[[2.5]]]]
    """
    size = pair("adaptive_avg_pool2d", "output_size", output_size, 1)
    height, width = input.shape[2:]
    result = np.empty((*input.shape[:2], *size), input.dtype)
    for i in range(size[0]):
        top, bottom = i * height // size[0], -(-(i + 1) * height // size[0])
        for j in range(size[1]):
            left, right = j * width // size[1], -(-(j + 1) * width // size[1])
            result[:, :, i, j] = input[:, :, top:bottom, left:right].mean((2, 3))
    return result
