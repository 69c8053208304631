"""Convolution and its gradients on the host, by way of BLAS, or for large filters of Fourier transforms.

Windows are unrolled for as many images at a time as fit into :data:`COLUMN_BYTES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.conv import host_fft, host_shift
from dl4all.ops.conv.window import Window
from dl4all.ops.core.tensor_base import Shape

NDArray = npt.NDArray[Any]
COLUMN_BYTES = 2**25


def forward(x: NDArray, w: NDArray, bias: NDArray | None, win: Window, groups: int) -> NDArray:
    """What :func:`dl4all.nn.functional.conv2d` computes, along any number of axes."""
    if host_fft.worthwhile(x.shape, w.shape, win, groups) and _finite(x, w):
        found = host_fft.forward(x, w, win, groups)
        return found if bias is None else found + _column(bias, len(win.kernel))
    lay = None if _depthwise(w, groups) else host_shift.layout(x.shape[2:], win)
    if lay is not None and w[0].size >= host_shift.LEAST_ROWS:
        return host_shift.forward(x, w, bias, lay, groups)
    images, filters, size = x.shape[0], w.shape[0], win.output_size(x.shape[2:])
    result: NDArray = np.empty((images, filters, *size), x.dtype)
    if _depthwise(w, groups):
        padded = padded_with(x, win)
        result[...] = 0
        for tap, part in taps(win, size):
            result += _by_filter(padded[part], filters) * _tap(w, tap)
    else:
        matrix = w.reshape(groups, filters // groups, math.prod(w.shape[1:]))
        for some, columns in _columns(x, win, size, groups):
            result[some] = np.matmul(matrix, columns).reshape(len(columns), filters, *size)
    if bias is not None:
        result += _column(bias, len(size))
    return result


def input_gradient(g: NDArray, w: NDArray, size: Shape, win: Window, groups: int) -> NDArray:
    """The gradient with respect to an input whose images have `size`."""
    images, channels, places = g.shape[0], w.shape[1] * groups, g.shape[2:]
    if host_fft.worthwhile((images, channels, *size), w.shape, win, groups) and _finite(g, w):
        return host_fft.input_gradient(g, w, size, win, groups)
    turned = None if _depthwise(w, groups) else host_shift.turned(win)
    lay = None if turned is None else host_shift.layout(places, turned)
    if lay is not None and w.shape[1] >= host_shift.LEAST_FILTERS:
        return host_shift.forward(g, _turned(w, groups), None, lay, groups)
    padded_size = tuple(a + b + c for a, b, c in zip(win.before, size, win.behind, strict=True))
    padded: NDArray = np.zeros((images, channels, *padded_size), g.dtype)
    if _depthwise(w, groups):
        for tap, part in taps(win, places):
            product = g * _tap(w, tap)
            padded[part] += product.reshape(images, channels, w.shape[0] // groups, *places).sum(2)
    else:
        filters, inner = w.shape[0] // groups, math.prod(w.shape[1:])
        matrix = np.ascontiguousarray(w.reshape(groups, filters, inner).swapaxes(1, 2))
        per_image = channels * math.prod(win.kernel) * math.prod(places)
        for some in _portions(images, per_image, g.itemsize):
            count = some.stop - some.start
            product = np.matmul(matrix, g[some].reshape(count, groups, filters, math.prod(places)))
            columns = product.reshape(count, channels, *win.kernel, *places)
            for tap, part in taps(win, places):
                padded[some][part] += columns[(slice(None), slice(None), *tap)]
    middle = (slice(low, low + extent) for low, extent in zip(win.before, size, strict=True))
    return padded[(slice(None), slice(None), *middle)]


def weight_gradient(g: NDArray, x: NDArray, win: Window, groups: int) -> NDArray:
    """The gradient with respect to the weight."""
    filters, channels, places = g.shape[1], x.shape[1] // groups, g.shape[2:]
    shape = (filters, channels, *win.kernel)
    if host_fft.worthwhile(x.shape, shape, win, groups) and _finite(x, g):
        return host_fft.weight_gradient(g, x, win, groups)
    if channels == 1 and groups > 1:
        result: NDArray = np.zeros(shape, g.dtype)
        padded = padded_with(x, win)
        axes = (0, *range(2, g.ndim))
        for tap, part in taps(win, places):
            result[(slice(None), 0, *tap)] = (g * _by_filter(padded[part], filters)).sum(axes)
        return result
    lay = host_shift.layout(x.shape[2:], win)
    if lay is not None and len(x) and _finite(x):
        return host_shift.weight_gradient(g, x, lay, groups)
    # The columns' rows first: with the few filters first, BLAS takes up to 1.6 times as long.
    products: NDArray = np.zeros((groups, channels * math.prod(win.kernel), filters // groups), g.dtype)
    for some, columns in _columns(x, win, places, groups):
        there = g[some].reshape(len(columns), groups, filters // groups, math.prod(places))
        for one, unrolled in zip(there, columns, strict=True):  # the sum over images, in their order
            products += np.matmul(unrolled, one.swapaxes(1, 2))
    return products.swapaxes(1, 2).reshape(shape)


def _finite(*arrays: NDArray) -> bool:
    """Whether there is neither nan nor inf, which would spread further than it should; False if in doubt."""
    return all(math.isfinite(array.sum()) for array in arrays)


def _depthwise(w: NDArray, groups: int) -> bool:
    return w.shape[1] == 1 and groups > 1


def _turned(w: NDArray, groups: int) -> NDArray:
    """Filters (C, F / groups, ...) that lead from the output's channels to the input's."""
    filters, channels = w.shape[:2]
    parts = w.reshape(groups, filters // groups, channels, *w.shape[2:]).swapaxes(1, 2)
    back = (slice(None),) * 3 + (slice(None, None, -1),) * (w.ndim - 2)
    return parts[back].reshape(groups * channels, filters // groups, *w.shape[2:])


def _column(values: NDArray, axes: int) -> NDArray:
    """One number for each channel, to broadcast along so many axes."""
    return values.reshape(-1, *(1,) * axes)


def _tap(w: NDArray, tap: Shape) -> NDArray:
    """One element of each filter, which has one channel."""
    every: tuple[Any, ...] = (slice(None), 0, *tap)
    return _column(w[every], len(tap))


def _by_filter(x: NDArray, filters: int) -> NDArray:
    """Each channel for all the filters that meet it."""
    return x if x.shape[1] == filters else np.repeat(x, filters // x.shape[1], axis=1)


def padded_with(x: NDArray, win: Window) -> NDArray:
    if not any((*win.before, *win.behind)):
        return x
    return np.pad(x, ((0, 0), (0, 0), *zip(win.before, win.behind, strict=True)))


def taps(win: Window, places: Shape) -> Iterator[tuple[Shape, Any]]:
    """Each element of a window, and what of the padded input it meets at all places."""
    for tap in np.ndindex(*win.kernel):
        starts = (i * d for i, d in zip(tap, win.dilation, strict=True))
        parts = (
            slice(start, start + (count - 1) * step + 1, step)
            for start, count, step in zip(starts, places, win.stride, strict=True)
        )
        yield tap, (slice(None), slice(None), *parts)


def _columns(x: NDArray, win: Window, places: Shape, groups: int) -> Iterator[tuple[slice, NDArray]]:
    """Some images, and their windows in the columns of matrices (images, groups, channels * taps, places)."""
    images, channels = x.shape[:2]
    pixels, elements = math.prod(places), math.prod(win.kernel)
    rows = channels // groups * elements
    if win.moves_nothing:
        yield slice(0, images), x.reshape(images, groups, rows, pixels)
        return
    for some in _portions(images, channels * elements * pixels, x.itemsize):
        padded = padded_with(x[some], win)
        columns = np.empty((len(padded), channels, *win.kernel, *places), x.dtype)
        for tap, part in taps(win, places):
            columns[(slice(None), slice(None), *tap)] = padded[part]
        yield some, columns.reshape(len(padded), groups, rows, pixels)


def _portions(images: int, per_image: int, itemsize: int) -> Iterator[slice]:
    count = max(1, COLUMN_BYTES // max(1, per_image * itemsize))
    for first in range(0, images, count):
        yield slice(first, min(first + count, images))
