"""Convolutions, their transposes, and columns of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.functions.vision.regions import moved_windows, product_by_groups
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.operators.windows import padding_rule, windows_of
from dl4all.onnx.registry import operator

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@operator("Conv")
def conv(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = call.tensors(x, weight)
    axes = x.ndim - 2
    if axes not in CONVOLUTIONS:
        raise call.refuse(f"a convolution over {axes} axes")
    windows = windows_of(call, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    padding = windows.low
    if windows.low != windows.high:
        x, padding = windows.padded(x, 0.0), (0,) * axes
    return CONVOLUTIONS[axes](
        x, weight, call.optional(bias), windows.stride, padding, windows.dilation, call.get("group", 1)
    )


def _cut(
    call: Call, size: int, full: int, stride: int, low: int, high: int, wanted: int | None
) -> tuple[int, int]:
    """The elements of a transposed convolution without padding that stay: the first, and how many."""
    auto = padding_rule(call)
    if wanted is None and auto in ("NOTSET", "VALID"):
        low, high = (low, high) if auto == "NOTSET" else (0, 0)
        return low, full - low - high
    wanted = size * stride if wanted is None else wanted
    total = full - wanted
    return (total // 2 if auto == "SAME_UPPER" else total - total // 2) if total > 0 else 0, wanted


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Any, weight: Any, bias: Any = None) -> Any:
    x, weight = call.tensors(x, weight)
    axes = x.ndim - 2
    if axes not in TRANSPOSED:
        raise call.refuse(f"a convolution over {axes} axes")
    stride, dilation, extra, pads = (
        call.get(name) or default
        for name, default in (
            ("strides", [1] * axes), ("dilations", [1] * axes), ("output_padding", [0] * axes),
            ("pads", [0] * 2 * axes),
        )
    )  # fmt: skip
    low, high, group = pads[:axes], pads[axes:], call.get("group", 1)
    wanted = call.get("output_shape")
    wanted = [None] * axes if wanted is None else wanted[-axes:]
    if low == high and padding_rule(call) == "NOTSET" and wanted == [None] * axes:
        return TRANSPOSED[axes](x, weight, call.optional(bias), stride, low, extra, group, dilation)
    y = TRANSPOSED[axes](x, weight, call.optional(bias), stride, 0, extra, group, dilation)
    cuts = [
        _cut(call, x.shape[2 + i], y.shape[2 + i], stride[i], low[i], high[i], wanted[i]) for i in range(axes)
    ]
    behind = [first + count - size for (first, count), size in zip(cuts, y.shape[2:], strict=True)]
    if max(behind) > 0:
        y = F.pad(y, [width for more in reversed(behind) for width in (0, max(more, 0))])
    return y[(slice(None), slice(None), *(slice(first, first + count) for first, count in cuts))]


@operator("Col2Im", reads=(1, 2))
def col2im(call: Call, columns: Any, image: Any, block: Any) -> Any:
    """Sums of columns over the windows that they come from, for any number of axes."""
    columns = call.tensor(columns)
    sizes, kernel = call.ints(image), call.ints(block)
    axes = len(sizes)
    stride, dilation = call.get("strides") or [1] * axes, call.get("dilations") or [1] * axes
    pads = call.get("pads") or [0] * 2 * axes
    padded = [n + pads[i] + pads[i + axes] for i, n in enumerate(sizes)]
    counts = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(padded, kernel, dilation, stride, strict=True)
    ]
    indices = _window_indices(padded, kernel, counts, stride, dilation)  # (elements of a window, windows)
    batch = columns.shape[0]
    rows = columns.reshape(batch, -1, indices.size)
    index = functions.broadcast_to(call.tensor(indices.reshape(1, 1, -1)), tuple(rows.shape))
    empty = rows.new_zeros((batch, rows.shape[1], math.prod(padded)))
    whole = functions.scatter_add(empty, 2, index, rows).reshape(batch, -1, *padded)
    inner = (slice(pads[i], pads[i] + n) for i, n in enumerate(sizes))
    return whole[(slice(None), slice(None), *inner)]


def _window_indices(
    sizes: Sequence[int],
    kernel: Sequence[int],
    counts: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """The flat indices of each element (first axis) of each window (second axis)."""
    total: Any = np.zeros((1, 1), np.int64)
    for size, k, n, s, d in zip(sizes, kernel, counts, stride, dilation, strict=True):
        axis = (np.arange(k) * d)[:, None] + np.arange(n) * s  # (k, n)
        total = total[:, None, :, None] * size + axis[None, :, None, :]
        total = total.reshape(total.shape[0] * k, -1)
    return total


@operator("DeformConv")
def deform_conv(call: Call, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """A convolution whose windows' elements are moved by offsets (Dai et al., arXiv:1703.06211)."""
    x, weight, offset = call.tensors(x, weight, offset)
    if x.ndim != 4:
        raise call.refuse(f"a deformable convolution of {x.ndim} axes")
    windows = windows_of(call, tuple(x.shape[2:]), tuple(weight.shape[2:]))
    factors = None if mask is None else call.tensor(mask)
    columns = moved_windows(x, offset, factors, windows.kernel, windows.stride, windows.low, windows.dilation)
    result = product_by_groups(columns, weight, call.get("group", 1), windows.counts)
    return result if bias is None else result + call.tensor(bias).reshape(1, -1, 1, 1)
