"""Convolution with large filters on the host, by Fourier transforms.

Mathieu, Henaff and LeCun, arXiv:1312.5851. Convolving with a filter of k x k elements takes k^2 operations
for each pixel directly, but only a few logarithms of the image's size by transforms. These are NumPy's, in
double precision, so that no digits of float32 are lost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.ops.conv.window import NDArray, Window, unpadded
from dl4all.ops.core.tensor_base import Shape

IMAGE_BYTES = 2**26  # Transforms of the images that are multiplied at a time.
MIN_KERNEL_ELEMENTS = 25  # There is nothing to save on smaller filters.
MIN_SPEEDUP = 1.5  # How many times faster transforms must be.

# Measured on one core.
NS_PER_UNROLLED_FLOAT = 0.6  # Unrolling an element of a window.
NS_PER_TERM = 0.013  # Multiplying that with a filter by BLAS.
NS_PER_TRANSFORM_STEP = 0.8  # One step of a transform at a point.
NS_PER_PRODUCT = 1.5  # Multiplying two transforms at a point.


def worthwhile(x: Shape, w: Shape, win: Window, groups: int) -> bool:
    """Whether it is faster to transform images of shape `x` and filters of shape `w`, for gradients too."""
    if math.prod(win.kernel) < MIN_KERNEL_ELEMENTS:
        return False
    images, channels, filters, inner = *x[:2], *w[:2]
    out_size = win.output_size(x[2:])
    if min(out_size, default=0) < 1 or 0 in (*x, *w):
        return False
    points = math.prod(_lengths(x[2:], win))
    transforms = images * channels + filters * inner + images * filters
    transform_ns = (
        transforms * points * math.log2(points) * NS_PER_TRANSFORM_STEP
        + images * filters * inner * points / 2 * NS_PER_PRODUCT
    )
    windows = images * channels * math.prod(out_size) * math.prod(win.kernel)
    return transform_ns * MIN_SPEEDUP < windows * (NS_PER_UNROLLED_FLOAT + NS_PER_TERM * filters / groups)


def forward(x: NDArray, w: NDArray, win: Window, groups: int) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, C / groups, ...)."""
    size, out_size = x.shape[2:], win.output_size(x.shape[2:])
    lengths = _lengths(size, win)
    filters = _transform(_dilated(w, win.dilation), lengths).conj()
    result: NDArray = np.empty((len(x), len(w), *out_size), x.dtype)
    for portion in _portions(len(x), len(w), lengths):
        images = _transform(_padded_before(x[portion], win), lengths)
        sums = _transform_back(_multiply(images, filters, groups, flip=False), lengths)
        result[portion] = sums[_strided_index(win.stride, out_size)]
    return result


def input_gradient(g: NDArray, w: NDArray, size: Shape, win: Window, groups: int) -> NDArray:
    """The gradient with respect to an input whose images have `size`."""
    lengths = _lengths(size, win)
    filters = _transform(_dilated(w, win.dilation), lengths)
    result: NDArray = np.empty((len(g), w.shape[1] * groups, *size), g.dtype)
    for portion in _portions(len(g), result.shape[1], lengths):
        gradients = _transform(_dilated(g[portion], win.stride), lengths)
        sums = _transform_back(_multiply(gradients, filters, groups, flip=True), lengths)
        result[portion] = unpadded(sums, size, win)
    return result


def weight_gradient(g: NDArray, x: NDArray, win: Window, groups: int) -> NDArray:
    """The gradient with respect to the weight."""
    filters, channels = g.shape[1], x.shape[1] // groups
    lengths = _lengths(x.shape[2:], win)
    sums: NDArray = np.zeros((filters, channels, *lengths[:-1], lengths[-1] // 2 + 1), np.complex128)
    for image, image_gradient in zip(x, g, strict=True):
        inputs = _transform(_padded_before(image[None], win), lengths)[0]
        gradients = _transform(_dilated(image_gradient[None], win.stride), lengths)[0].conj()
        for f in range(filters):
            first = f // (filters // groups) * channels
            sums[f] += inputs[first : first + channels] * gradients[f]
    result: NDArray = _transform_back(sums, lengths)[_strided_index(win.dilation, win.kernel)]
    return result.astype(g.dtype, copy=False)


def _multiply(a: NDArray, w: NDArray, groups: int, *, flip: bool) -> NDArray:
    """Sums of products of transforms over the channels; with `flip` over the filters, to the input."""
    filters, channels = len(w) // groups, w.shape[1]
    grouped_filters = w.reshape(groups, filters, *w.shape[1:])
    grouped = a.reshape(len(a), groups, -1, *a.shape[2:])
    result = np.zeros((len(a), groups, channels if flip else filters, *a.shape[2:]), np.complex128)
    for k in range(grouped.shape[2]):
        result += grouped[:, :, k, None] * (grouped_filters[:, k] if flip else grouped_filters[:, :, k])
    return result.reshape(len(a), -1, *a.shape[2:])


def _lengths(size: Shape, win: Window) -> Shape:
    """The lengths of the transforms: the padded image fits, and no prime factor is above 5."""
    return tuple(_smooth(extent) for extent in win.padded_size(size))


def _smooth(least: int) -> int:
    """The next number without a prime factor above 5, for which transforms are fast.

    >>> [_smooth(n) for n in (1, 7, 61, 81, 97)]
    [1, 8, 64, 81, 100]
    """
    while True:
        rest = least
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return least
        least += 1


def _transform(x: NDArray, lengths: Shape) -> NDArray:
    return np.fft.rfftn(x, lengths, tuple(range(2, x.ndim)))


def _transform_back(x: NDArray, lengths: Shape) -> Any:
    return np.fft.irfftn(x, lengths, tuple(range(2, x.ndim)))


def _padded_before(x: NDArray, win: Window) -> NDArray:
    # The transform adds the zeros behind.
    return np.pad(x, ((0, 0), (0, 0), *((low, 0) for low in win.before)))


def _dilated(x: NDArray, steps: Shape) -> NDArray:
    """The elements with zeros between them."""
    if set(steps) == {1}:
        return x
    size = tuple((n - 1) * step + 1 for n, step in zip(x.shape[2:], steps, strict=True))
    wide: NDArray = np.zeros((*x.shape[:2], *size), x.dtype)
    wide[_strided_index(steps, x.shape[2:])] = x
    return wide


def _strided_index(steps: Shape, count: Shape) -> Any:
    """The index of `count` elements of images, `steps` apart, along each axis."""
    spans = (slice(0, (n - 1) * step + 1, step) for n, step in zip(count, steps, strict=True))
    return (slice(None), slice(None), *spans)


def _portions(images: int, channels: int, lengths: Shape) -> list[slice]:
    """The images that are multiplied at a time."""
    count = max(1, IMAGE_BYTES // (8 * channels * math.prod(lengths)))
    return [slice(first, first + count) for first in range(0, images, count)]
