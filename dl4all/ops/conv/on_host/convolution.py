"""Convolution and its gradients on the host: the choice between the algorithms.

Large filters are convolved by Fourier transforms, depthwise filters element by element, filters with stride 1
by products with shifted images, and all others by im2col. Transforms need finite operands: nan and inf would
spread further than they should.
"""

from __future__ import annotations

import math

from dl4all.ops.conv.on_host import depthwise as host_depthwise
from dl4all.ops.conv.on_host import fft as host_fft
from dl4all.ops.conv.on_host import im2col as host_im2col
from dl4all.ops.conv.on_host import shift as host_shift
from dl4all.ops.conv.scratch import NEW, Scratch
from dl4all.ops.conv.window import NDArray, Window
from dl4all.ops.core.tensor_base import Shape


def forward(
    x: NDArray,
    w: NDArray,
    bias: NDArray | None,
    win: Window,
    groups: int,
    out: NDArray | None = None,
    scratch: Scratch = NEW,
) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, C / groups, ...), along any number of axes.

    The result is written to `out`, contiguous, if that is given.
    """
    result = _forward(x, w, bias, win, groups, out, scratch)
    if out is not None and result is not out:
        out[...] = result
        return out
    return result


def _forward(
    x: NDArray,
    w: NDArray,
    bias: NDArray | None,
    win: Window,
    groups: int,
    out: NDArray | None,
    scratch: Scratch,
) -> NDArray:
    if host_fft.worthwhile(x.shape, w.shape, win, groups) and _finite(x, w):
        result = host_fft.forward(x, w, win, groups)
    elif _depthwise(w.shape[1], groups):
        result = host_depthwise.forward(x, w, win)
    elif layout := host_shift.forward_layout(x.shape[2:], w.shape, win):
        return host_shift.forward(x, w, bias, layout, groups, out, scratch)
    else:
        result = host_im2col.forward(x, w, win, groups, out, scratch)
    if bias is not None:
        result += bias.reshape(-1, *(1,) * len(win.kernel))
    return result


def input_gradient(g: NDArray, w: NDArray, size: Shape, win: Window, groups: int) -> NDArray:
    """The gradient with respect to an input whose images have `size`."""
    if host_fft.worthwhile((len(g), w.shape[1] * groups, *size), w.shape, win, groups) and _finite(g, w):
        return host_fft.input_gradient(g, w, size, win, groups)
    if _depthwise(w.shape[1], groups):
        return host_depthwise.input_gradient(g, w, size, win, groups)
    if layout := host_shift.input_gradient_layout(g.shape[2:], w.shape, win):
        return host_shift.input_gradient(g, w, layout, groups)
    return host_im2col.input_gradient(g, w, size, win, groups)


def weight_gradient(g: NDArray, x: NDArray, win: Window, groups: int) -> NDArray:
    """The gradient with respect to the weight."""
    shape = (g.shape[1], x.shape[1] // groups, *win.kernel)
    if host_fft.worthwhile(x.shape, shape, win, groups) and _finite(x, g):
        return host_fft.weight_gradient(g, x, win, groups)
    if _depthwise(shape[1], groups):
        return host_depthwise.weight_gradient(g, x, win)
    layout = host_shift.layout(x.shape[2:], win)
    if layout is not None and len(x) and _finite(x):
        return host_shift.weight_gradient(g, x, layout, groups)
    return host_im2col.weight_gradient(g, x, win, groups)


def _finite(*arrays: NDArray) -> bool:
    """Whether arrays have neither nan nor inf; False if a sum overflows."""
    return all(math.isfinite(array.sum()) for array in arrays)


def _depthwise(channels_per_group: int, groups: int) -> bool:
    return channels_per_group == 1 and groups > 1
