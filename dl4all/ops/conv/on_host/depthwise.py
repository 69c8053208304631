"""Depthwise convolution on the host, one element of the filters after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.conv.window import NDArray, Window, padded, taps, unpadded
from dl4all.ops.core.tensor_base import Shape


def forward(x: NDArray, w: NDArray, win: Window) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, 1, ...)."""
    images, filters, out_size = len(x), len(w), win.output_size(x.shape[2:])
    result: NDArray = np.zeros((images, filters, *out_size), x.dtype)
    x = padded(x, win)
    for tap, part in taps(win, out_size):
        result += _repeated(x[part], filters) * _element(w, tap)
    return result


def input_gradient(g: NDArray, w: NDArray, size: Shape, win: Window, groups: int) -> NDArray:
    """The gradient with respect to an input whose images have `size`."""
    images, out_size = len(g), g.shape[2:]
    gradient: NDArray = np.zeros((images, groups, *win.padded_size(size)), g.dtype)
    for tap, part in taps(win, out_size):
        product = g * _element(w, tap)
        gradient[part] += product.reshape(images, groups, len(w) // groups, *out_size).sum(2)
    return unpadded(gradient, size, win)


def weight_gradient(g: NDArray, x: NDArray, win: Window) -> NDArray:
    """The gradient with respect to filters (F, 1, ...)."""
    filters = g.shape[1]
    gradient: NDArray = np.zeros((filters, 1, *win.kernel), g.dtype)
    x = padded(x, win)
    axes = (0, *range(2, g.ndim))
    for tap, part in taps(win, g.shape[2:]):
        index: tuple[Any, ...] = (slice(None), 0, *tap)
        gradient[index] = (g * _repeated(x[part], filters)).sum(axes)
    return gradient


def _element(w: NDArray, tap: Shape) -> NDArray:
    """One element of each filter, to broadcast along the axes of images."""
    index: tuple[Any, ...] = (slice(None), 0, *tap)
    elements: NDArray = w[index].reshape(-1, *(1,) * len(tap))
    return elements


def _repeated(x: NDArray, filters: int) -> NDArray:
    """Each channel once for each filter that sees it."""
    return x if x.shape[1] == filters else np.repeat(x, filters // x.shape[1], axis=1)
