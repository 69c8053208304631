"""Convolution on the host by unrolled windows and BLAS (Chellapilla, Puri and Simard, 2006).

Windows are unrolled for as many images at a time as fit into :data:`COLUMN_BYTES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dl4all.ops.conv.scratch import NEW, Scratch
from dl4all.ops.conv.window import NDArray, Window, padded, taps, unpadded
from dl4all.ops.core.tensor_base import Shape

COLUMN_BYTES = 2**25  # of the columns of whole images, for gradients
BLOCK_BYTES = 2**19  # of the columns of some rows of results: half of a core's cache


def forward(
    x: NDArray, w: NDArray, win: Window, groups: int, out: NDArray | None = None, scratch: Scratch = NEW
) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, C / groups, ...), in `out` if given."""
    images, filters, out_size = len(x), len(w), win.output_size(x.shape[2:])
    result: NDArray = np.empty((images, filters, *out_size), x.dtype) if out is None else out
    if 0 in result.shape:
        return result
    matrix = w.reshape(groups, filters // groups, math.prod(w.shape[1:]))
    products = result.reshape(images, groups, filters // groups, math.prod(out_size))
    if win.is_pointwise:
        np.matmul(matrix, x.reshape(images, groups, matrix.shape[2], math.prod(out_size)), out=products)
        return result
    win = _within(win, win.padded_size(x.shape[2:]))
    phases = _phases(x, win, scratch)
    pixels = math.prod(out_size[1:])  # of a row of results
    rows_at_a_time = max(1, BLOCK_BYTES // max(1, groups * matrix.shape[2] * pixels * x.itemsize))
    for image in range(images):
        for first in range(0, out_size[0], rows_at_a_time):
            count = min(rows_at_a_time, out_size[0] - first)
            columns = scratch.take("columns", (x.shape[1], *win.kernel, count, *out_size[1:]), x.dtype)
            for taps_of_phase, windows in _windows(phases, win, image, first, (count, *out_size[1:])):
                np.copyto(columns[(slice(None),) * len(win.kernel) + (taps_of_phase,)], windows)
            matrices = columns.reshape(groups, matrix.shape[2], count * pixels)
            np.matmul(matrix, matrices, out=products[image, ..., first * pixels : (first + count) * pixels])
    return result


def _within(win: Window, size: Shape) -> Window:
    """A window with the same places on padded images of this size, without steps beyond them."""
    return replace(
        win,
        stride=tuple(map(min, win.stride, size)),
        dilation=tuple(d if k > 1 else 1 for d, k in zip(win.dilation, win.kernel, strict=True)),
    )


def _phases(x: NDArray, win: Window, scratch: Scratch) -> NDArray:
    """The padded images, split along the last axis by the remainder of a place and the stride.

    What an element of a window meets lies side by side there.

    Shape:
        (remainders, images, channels, ...)
    """
    step = win.stride[-1]
    size = win.padded_size(x.shape[2:])
    whole = scratch.zeros(win, (*x.shape[:2], *size), x.dtype)
    unpadded(whole, x.shape[2:], win)[...] = x
    if step == 1:
        return whole[None]
    phases = scratch.take("phases", (step, *whole.shape[:-1], -(-size[-1] // step)), x.dtype)
    for phase in range(min(step, size[-1])):
        part = whole[..., phase::step]
        phases[phase, ..., : part.shape[-1]] = part
    return phases


def _windows(
    phases: NDArray, win: Window, image: int, first: int, count: Shape
) -> Iterator[tuple[slice, NDArray]]:
    """Elements of windows along the last axis whose places share a phase, and what they meet.

    Args:
        phases: see :func:`_phases`.
        win: the window.
        image: of which image.
        first: the first row of results.
        count: of rows of results, and the sizes of the other axes.

    Shape:
        (channels, *elements of a window, *count)
    """
    step, dilation = win.stride[-1], win.dilation[-1]
    period = step // math.gcd(step, dilation)
    *outer, width = phases.strides[3:]
    for tap in range(min(period, win.kernel[-1])):
        start, phase = divmod(tap * dilation, step)
        taps = -(-(win.kernel[-1] - tap) // period)
        corner = phases[phase, image, :, first * win.stride[0] :] if outer else phases[phase, image]
        start += 0 if outer else first
        strides = (
            phases.strides[2],
            *(d * stride for d, stride in zip(win.dilation, outer, strict=False)),
            period * dilation // step * width,
            *(s * stride for s, stride in zip(win.stride, outer, strict=False)),
            width,
        )
        shape = (len(corner), *win.kernel[:-1], taps, *count)
        yield slice(tap, None, period), as_strided(corner[..., start:], shape, strides, writeable=False)


def input_gradient(g: NDArray, w: NDArray, size: Shape, win: Window, groups: int) -> NDArray:
    """The gradient with respect to an input whose images have `size`."""
    images, channels, out_size = len(g), w.shape[1] * groups, g.shape[2:]
    filters, reduction_size, out_pixels = len(w) // groups, math.prod(w.shape[1:]), math.prod(out_size)
    gradient: NDArray = np.zeros((images, channels, *win.padded_size(size)), g.dtype)
    matrix = np.ascontiguousarray(w.reshape(groups, filters, reduction_size).swapaxes(1, 2))
    floats_per_image = channels * math.prod(win.kernel) * out_pixels
    for portion in _portions(images, floats_per_image, g.itemsize):
        count = portion.stop - portion.start
        product = np.matmul(matrix, g[portion].reshape(count, groups, filters, out_pixels))
        columns = product.reshape(count, channels, *win.kernel, *out_size)
        for tap, part in taps(win, out_size):
            gradient[portion][part] += columns[(slice(None), slice(None), *tap)]
    return unpadded(gradient, size, win)


def weight_gradient(g: NDArray, x: NDArray, win: Window, groups: int) -> NDArray:
    """The gradient with respect to the weight."""
    filters, channels, out_size = g.shape[1], x.shape[1] // groups, g.shape[2:]
    # The columns' rows first: with the few filters first, BLAS takes up to 1.6 times as long.
    sums: NDArray = np.zeros((groups, channels * math.prod(win.kernel), filters // groups), g.dtype)
    for portion, columns in _columns(x, win, out_size, groups):
        gradients = g[portion].reshape(len(columns), groups, filters // groups, math.prod(out_size))
        for gradient, unrolled in zip(gradients, columns, strict=True):  # in the order of the images
            sums += np.matmul(unrolled, gradient.swapaxes(1, 2))
    return sums.swapaxes(1, 2).reshape(filters, channels, *win.kernel)


def _columns(x: NDArray, win: Window, out_size: Shape, groups: int) -> Iterator[tuple[slice, NDArray]]:
    """Portions of the images, and their windows as the columns of matrices.

    Shape:
        (images, groups, channels * elements of a window, output pixels)
    """
    images, channels = x.shape[:2]
    out_pixels, kernel_elements = math.prod(out_size), math.prod(win.kernel)
    rows = channels // groups * kernel_elements
    if win.is_pointwise:
        yield slice(0, images), x.reshape(images, groups, rows, out_pixels)
        return
    for portion in _portions(images, channels * kernel_elements * out_pixels, x.itemsize):
        padded_images = padded(x[portion], win)
        columns = np.empty((len(padded_images), channels, *win.kernel, *out_size), x.dtype)
        for tap, part in taps(win, out_size):
            index: tuple[Any, ...] = (slice(None), slice(None), *tap)
            columns[index] = padded_images[part]
        yield portion, columns.reshape(len(padded_images), groups, rows, out_pixels)


def _portions(images: int, floats_per_image: int, itemsize: int) -> Iterator[slice]:
    """The images whose columns are unrolled at a time."""
    count = max(1, COLUMN_BYTES // max(1, floats_per_image * itemsize))
    for first in range(0, images, count):
        yield slice(first, min(first + count, images))
