"""Convolution with large filters on the host: a product of Fourier transforms.

Mathieu, Henaff and LeCun, arXiv:1312.5851. What a filter of k x k elements does to an image takes k^2
operations for each pixel directly, and a few logarithms of the image's size by way of the transforms. These
are NumPy's, in double precision, so that no digits of float32 are lost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.conv.window import Window
from dl4all.ops.core.tensor_base import Shape

NDArray = npt.NDArray[Any]
IMAGE_BYTES = 2**26  # of the transforms of as many images as are multiplied at a time

# Nanoseconds, measured on one core: to unroll an element of a window, to multiply it with a filter by BLAS,
# for one step of a transform at a point, to multiply two transforms there, and for all the calls.
UNROLL, MULTIPLY, TRANSFORM, PRODUCT = 0.6, 0.013, 0.8, 1.5
CLEARLY = 1.5  # times faster than the other way
LEAST_TAPS = 25  # of a filter; there is nothing to save on smaller ones


def worthwhile(x: Shape, w: Shape, win: Window, groups: int) -> bool:
    """Whether it is faster to transform images of shape `x` and filters of shape `w`, for gradients too."""
    if math.prod(win.kernel) < LEAST_TAPS:
        return False
    images, channels, filters, inner = *x[:2], *w[:2]
    out_size = win.output_size(x[2:])
    if min(out_size, default=0) < 1 or 0 in (*x, *w):
        return False
    points = math.prod(_extents(x[2:], win))
    transforms = images * channels + filters * inner + images * filters
    spent = (
        transforms * points * math.log2(points) * TRANSFORM + images * filters * inner * points / 2 * PRODUCT
    )
    windows = images * channels * math.prod(out_size) * math.prod(win.kernel)
    return spent * CLEARLY < windows * (UNROLL + MULTIPLY * filters / groups)


def forward(x: NDArray, w: NDArray, win: Window, groups: int) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, C / groups, ...)."""
    size, out_size = x.shape[2:], win.output_size(x.shape[2:])
    extents = _extents(size, win)
    filters = _transform(_spaced(w, win.dilation), extents).conj()
    result: NDArray = np.empty((len(x), len(w), *out_size), x.dtype)
    for some in _portions(len(x), len(w), extents):
        images = _transform(_padded(x[some], win), extents)
        found = _back(_by_group(images, filters, groups, turned=False), extents)
        result[some] = found[_every(win.stride, out_size)]
    return result


def input_gradient(g: NDArray, w: NDArray, size: Shape, win: Window, groups: int) -> NDArray:
    """The gradient with respect to an input whose images have `size`."""
    extents = _extents(size, win)
    filters = _transform(_spaced(w, win.dilation), extents)
    result: NDArray = np.empty((len(g), w.shape[1] * groups, *size), g.dtype)
    middle = tuple(slice(low, low + extent) for low, extent in zip(win.before, size, strict=True))
    for some in _portions(len(g), result.shape[1], extents):
        outputs = _transform(_spaced(g[some], win.stride), extents)
        found = _back(_by_group(outputs, filters, groups, turned=True), extents)
        result[some] = found[(slice(None), slice(None), *middle)]
    return result


def weight_gradient(g: NDArray, x: NDArray, win: Window, groups: int) -> NDArray:
    """The gradient with respect to the weight."""
    filters, channels = g.shape[1], x.shape[1] // groups
    extents = _extents(x.shape[2:], win)
    found: NDArray = np.zeros((filters, channels, *extents[:-1], extents[-1] // 2 + 1), np.complex128)
    for image, output in zip(x, g, strict=True):
        seen = _transform(_padded(image[None], win), extents)[0]
        of_output = _transform(_spaced(output[None], win.stride), extents)[0].conj()
        for f in range(filters):
            first = f // (filters // groups) * channels
            found[f] += seen[first : first + channels] * of_output[f]
    gradient: NDArray = _back(found, extents)[_every(win.dilation, win.kernel)].astype(g.dtype, copy=False)
    return gradient


def _by_group(a: NDArray, w: NDArray, groups: int, *, turned: bool) -> NDArray:
    """Sums over channels of products of transforms; `turned`: from the filters' outputs to their inputs."""
    some, inner = len(w) // groups, w.shape[1]
    parts = w.reshape(groups, some, *w.shape[1:])
    given = a.reshape(len(a), groups, -1, *a.shape[2:])
    result = np.zeros((len(a), groups, inner if turned else some, *a.shape[2:]), np.complex128)
    for k in range(given.shape[2]):
        result += given[:, :, k, None] * (parts[:, k] if turned else parts[:, :, k])
    return result.reshape(len(a), -1, *a.shape[2:])


def _extents(size: Shape, win: Window) -> Shape:
    """Those of the transforms: the padded image fits, and no prime factor is above 5."""
    return tuple(_smooth(n + a + b) for n, a, b in zip(size, win.before, win.behind, strict=True))


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


def _transform(x: NDArray, extents: Shape) -> NDArray:
    return np.fft.rfftn(x, extents, tuple(range(2, x.ndim)))


def _back(x: NDArray, extents: Shape) -> Any:
    return np.fft.irfftn(x, extents, tuple(range(2, x.ndim)))


def _padded(x: NDArray, win: Window) -> NDArray:
    # Zeros behind come with the transform.
    return np.pad(x, ((0, 0), (0, 0), *((low, 0) for low in win.before)))


def _spaced(x: NDArray, steps: Shape) -> NDArray:
    """The elements with zeros between them."""
    if set(steps) == {1}:
        return x
    size = tuple((n - 1) * step + 1 for n, step in zip(x.shape[2:], steps, strict=True))
    wide: NDArray = np.zeros((*x.shape[:2], *size), x.dtype)
    wide[_every(steps, x.shape[2:])] = x
    return wide


def _every(steps: Shape, count: Shape) -> Any:
    """So many places along each axis of images, with these distances."""
    spans = (slice(0, (n - 1) * step + 1, step) for n, step in zip(count, steps, strict=True))
    return (slice(None), slice(None), *spans)


def _portions(images: int, channels: int, extents: Shape) -> list[slice]:
    count = max(1, IMAGE_BYTES // (8 * channels * math.prod(extents)))
    return [slice(first, first + count) for first in range(0, images, count)]
