"""Convolution of images as a matrix product.

On every device the windows that the filters meet are unrolled into the columns of a matrix
(im2col; Chellapilla, Puri and Simard, 2006), which a matrix product then multiplies with the
filters. A 1x1 convolution with stride 1 needs no unrolling.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.base import Array, TensorBase
from dl4all.ops.gemm import GEMM_SHADERS, PANEL, Matrices, gemm
from dl4all.ops.launch import ceil_div, pack, run, shader
from dl4all.ops.memory import contiguous
from dl4all.ops.op import Kernel, Result, empty, example, op
from dl4all.ops.window import Window, check_float, check_images, placed, window

IM2COL = shader("conv/im2col.comp")
WORKGROUP = 64
IM2COL_CHANNELS = 4  # of one invocation
COLUMN_BYTES = 2**25  # of unrolled windows at a time; large enough to keep every core or multiprocessor busy


def _window(weight: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    return window("conv2d", tuple(weight.shape[2:]), stride, padding, dilation)


def _shape(
    input: TensorBase,
    weight: TensorBase,
    bias: TensorBase | None,
    *,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Result:
    check_images("conv2d", input)
    check_float("conv2d", input, weight, bias)
    if len(weight.shape) != 4:
        raise ShapeError(
            f"[conv2d] expected a weight of shape (out, in / groups, KH, KW), got {weight.shape}"
        )
    filters, channels = weight.shape[:2]
    if groups < 1 or filters % groups:
        raise ArgumentError(f"[conv2d] {filters} filters do not split into {groups} groups")
    if input.shape[1] != channels * groups:
        raise ShapeError(
            f"[conv2d] the weight {weight.shape} with {groups} group{'s' * (groups > 1)} takes "
            f"{channels * groups} channels, the input {input.shape} has {input.shape[1]}"
        )
    if bias is not None and bias.shape != (filters,):
        raise ShapeError(f"[conv2d] bias must have shape ({filters},), got {bias.shape}")
    size = placed("conv2d", input.shape, _window(weight, stride, padding, dilation))
    return (input.shape[0], filters, *size), input.dtype


def _run(
    out: TensorBase,
    input: TensorBase,
    weight: TensorBase,
    bias: TensorBase | None,
    *,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> None:
    x, w = contiguous(input), contiguous(weight)
    bias = None if bias is None else contiguous(bias)
    win = _window(w, stride, padding, dilation)
    images, channels, height, width = x.shape
    filters, inner = w.shape[0] // groups, w.shape[1] * win.kernel_h * win.kernel_w
    pixels = out.shape[2] * out.shape[3]
    image_size = channels * height * width
    group_size = image_size // groups
    plain = win == Window(1, 1, 1, 1, 0, 0, 1, 1)

    # So many pixels of so many images at a time that their columns stay below COLUMN_BYTES.
    most = COLUMN_BYTES // 4 // max(inner, 1)
    span = pixels if plain else min(pixels, max(PANEL, most // PANEL * PANEL))
    pitch = pixels if plain else ceil_div(span, PANEL) * PANEL
    batch = images if plain else max(1, min(images, most // pitch))
    columns = x if plain else empty(type(out), (batch, inner, pitch), out.dtype, out.device)
    for first_image in range(0, images, batch):
        count = min(batch, images - first_image)
        for group in range(groups):
            source = x.offset + first_image * image_size + group * group_size
            for first in range(0, pixels, span):
                here = min(span, pixels - first)
                if not plain:
                    push = pack(
                        w.shape[1], height, width, out.shape[3], *win,
                        first, here, pitch, PANEL,
                        source, image_size, inner * pitch,
                    )  # fmt: skip
                    taps = win.kernel_h * win.kernel_w
                    rows = ceil_div(w.shape[1], IM2COL_CHANNELS) * taps
                    run(IM2COL, (ceil_div(pitch // 4, WORKGROUP), rows, count), push, x, columns)
                product = Matrices(
                    m=filters, n=here, k=inner,
                    lda=inner, ldb=pixels if plain else PANEL, ldc=pixels,
                    a_offset=w.offset + group * filters * inner,
                    b_offset=source if plain else 0,
                    c_offset=(first_image * groups + group) * filters * pixels + first,
                    batch=count,
                    b_step=image_size if plain else inner * pitch,
                    c_step=groups * filters * pixels,
                    panel=0 if plain else PANEL,
                    panel_step=inner * PANEL,
                )  # fmt: skip
                gemm(out, w, columns, bias, product, bias_offset=group * filters)


def _flops(input: TensorBase, weight: TensorBase, bias: TensorBase | None, **arguments: Any) -> int:
    shape, _ = _shape(input, weight, bias, **arguments)
    return 2 * math.prod(shape) * math.prod(weight.shape[1:])


@op(
    infer=_shape,
    flops=_flops,
    kernel=Kernel(_run, (IM2COL, *GEMM_SHADERS)),
    examples=(
        example((2, 3, 13, 11), (5, 3, 3, 3), (5,), padding=1),
        example((1, 3, 23, 29), (8, 3, 7, 7), None, stride=2, padding=3),
        example((2, 8, 7, 7), (12, 8, 1, 1), (12,)),
        example((1, 4, 9, 5), (6, 4, 1, 1), None, stride=2),
        example((2, 6, 11, 13), (9, 2, 3, 2), (9,), stride=(2, 1), padding=(0, 2), dilation=(1, 3), groups=3),
        example((1, 5, 7, 7), (5, 1, 3, 3), (5,), padding=1, groups=5),
        example((1, 1, 1, 1), (1, 1, 1, 1), (1,)),
        example((3, 64, 14, 14), (67, 64, 3, 3), (67,), padding=1),
        example((0, 3, 5, 5), (4, 3, 3, 3), (4,)),
        example((2, 0, 5, 5), (4, 0, 3, 3), (4,)),
    ),
)
def conv2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation of images with filters, as neural networks call convolution.

    Args:
        input: floats of shape (N, C, H, W).
        weight: shape (F, C / groups, KH, KW).
        bias: shape (F,), or None.
        stride, padding, dilation: one int for both axes or a pair (vertical, horizontal); the
            padding is zeros.
        groups: filters and channels are split into so many groups that do not see each other.

    Returns:
        Shape (N, F, OH, OW), OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.

    Raises:
        ShapeError: shapes do not fit each other, or the window does not fit into the input.
        ArgumentError: a size is not an int or too small.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 2.0, 3.0]]]])
        >>> dl.nn.functional.conv2d(x, dl.tensor([[[[1.0, -1.0]]]])).tolist()
        [[[[-1.0, -1.0]]]]
    """
    win = _window(weight, stride, padding, dilation)
    images, size = input.shape[0], input.shape[2:]
    out_h, out_w = win.output_size(*size)
    filters, group_channels = weight.shape[:2]
    ph, pw = win.padding_h, win.padding_w
    padded = np.pad(input, ((0, 0), (0, 0), (ph, ph), (pw, pw))) if ph or pw else input
    inner = group_channels * win.kernel_h * win.kernel_w
    columns = np.empty(
        (images, groups, group_channels, win.kernel_h, win.kernel_w, out_h, out_w), input.dtype
    )
    split = padded.reshape(images, groups, group_channels, *padded.shape[2:])
    for i in range(win.kernel_h):
        for j in range(win.kernel_w):
            top, left = i * win.dilation_h, j * win.dilation_w
            rows = slice(top, top + (out_h - 1) * win.stride_h + 1, win.stride_h)
            cols = slice(left, left + (out_w - 1) * win.stride_w + 1, win.stride_w)
            columns[:, :, :, i, j] = split[:, :, :, rows, cols]
    product = np.matmul(
        weight.reshape(groups, filters // groups, inner),
        columns.reshape(images, groups, inner, out_h * out_w),
    )
    result = product.reshape(images, filters, out_h, out_w)
    if bias is not None:
        result += bias.reshape(-1, 1, 1)
    return result
