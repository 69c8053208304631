"""Pools over windows, and over everything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.operators.convolution import CONVOLUTIONS
from dl4all.onnx.operators.windows import Windows, windows_of
from dl4all.onnx.registry import operator
from dl4all.ops.core.dtypes import kind_of

MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _windows(call: Call, x: Any) -> Windows:
    axes = len(x.shape) - 2
    if axes not in MAX_POOLS:
        raise call.refuse(f"a pool over {axes} axes")
    return windows_of(call, tuple(x.shape[2:]), tuple(call.get("kernel_shape")))


def _fits(windows: Windows) -> bool:
    """Whether PyTorch's pools have such windows: no more padding than half of one."""
    return windows.is_even and all(2 * p <= k for p, k in zip(windows.low, windows.kernel, strict=True))


@operator("MaxPool")
def max_pool(call: Call, x: Any) -> Any:
    x, windows = call.tensor(x), _windows(call, x)
    dtype = x.dtype
    x = x if kind_of(dtype) == "f" else x.to("float32")  # which holds all integers of 8 bits
    fits = _fits(windows)
    padded, padding = (x, windows.low) if fits else (windows.padded(x, -math.inf), 0)
    pool = MAX_POOLS[len(windows.kernel)]
    if call.results == 1:
        return pool(padded, windows.kernel, windows.stride, padding, windows.dilation).to(dtype)
    y, indices = pool(padded, windows.kernel, windows.stride, padding, windows.dilation, return_indices=True)
    sizes = tuple(padded.shape[2:])
    shifts = (0,) * len(sizes) if fits else windows.low
    return y.to(dtype), _numbered(call, indices, x, sizes, shifts)


def _numbered(call: Call, indices: Any, x: Any, sizes: tuple[int, ...], shifts: tuple[int, ...]) -> Any:
    """Places within a padded image as numbers of elements of the whole tensor."""
    own, area = tuple(x.shape[2:]), math.prod(x.shape[2:])
    order = range(len(own)) if call.get("storage_order", 0) == 0 else range(len(own) - 1, -1, -1)
    coordinates, rest = dict[int, Any](), indices
    for axis in reversed(range(len(sizes))):
        coordinates[axis] = functions.remainder(rest, sizes[axis]) - shifts[axis]
        rest = functions.div(rest, sizes[axis], rounding_mode="floor")
    flat: Any = 0
    for axis in order:
        flat = flat * own[axis] + coordinates[axis]
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(own)) * area
    return flat + call.tensor(images)


def _sums(call: Call, x: Any, windows: Windows) -> Any:
    """The sums of windows, with zeros around the input."""
    padded, axes = windows.padded(x, 0.0), len(windows.kernel)
    if set(windows.dilation) == {1}:
        return AVERAGE_POOLS[axes](padded, windows.kernel, windows.stride) * math.prod(windows.kernel)
    ones = call.tensor(np.ones((x.shape[1], 1, *windows.kernel), np.float32)).to(x.dtype)
    return CONVOLUTIONS[axes](padded, ones, None, windows.stride, 0, windows.dilation, x.shape[1])


@operator("AveragePool")
def average_pool(call: Call, x: Any) -> Any:
    x, windows, padding = call.tensor(x), _windows(call, x), call.flag("count_include_pad")
    if _fits(windows) and set(windows.dilation) == {1}:
        pool = AVERAGE_POOLS[len(windows.kernel)]
        return pool(x, windows.kernel, windows.stride, windows.low, False, padding)
    counts = np.maximum(windows.covered(padding=padding), 1).astype(np.float32)
    return _sums(call, x, windows) / call.tensor(counts).to(x.dtype)


@operator("LpPool")
def lp_pool(call: Call, x: Any) -> Any:
    x, windows, p = call.tensor(x), _windows(call, x), call.get("p", 2)
    return _sums(call, functions.abs(x) ** p, windows) ** (1 / p)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call, x: Any) -> Any:
    x = call.tensor(x)
    axes, kind = tuple(range(2, x.ndim)), call.node.op_type
    if kind == "GlobalAveragePool":
        return x.mean(axes, keepdim=True)
    if kind == "GlobalMaxPool":
        return functions.amax(x, axes, keepdim=True)
    p = call.get("p", 2)
    return (functions.abs(x) ** p).sum(axes, keepdim=True) ** (1 / p)


@operator("MaxUnpool", reads=(2,))
def max_unpool(call: Call, x: Any, indices: Any, sizes: Any = None) -> Any:
    """Zeros with the largest elements of windows where they were."""
    x, indices = call.tensors(x, indices)
    axes = x.ndim - 2
    kernel, stride = call.get("kernel_shape"), call.get("strides") or [1] * axes
    pads = call.get("pads") or [0] * 2 * axes
    own = [(x.shape[2 + i] - 1) * stride[i] + kernel[i] - pads[i] - pads[i + axes] for i in range(axes)]
    whole = [x.shape[0], x.shape[1], *own]
    flat = x.new_zeros((math.prod(whole),))
    y = functions.scatter(flat, 0, indices.reshape(-1), x.reshape(-1)).reshape(*whole)
    if sizes is None:
        return y
    more = [new - old for new, old in zip(call.ints(sizes), whole, strict=True)]
    return F.pad(y, [width for n in reversed(more) for width in (0, n)])
