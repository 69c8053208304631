"""Convolution with stride 1 on the host, as products with shifted images.

All images of a channel lie in one long row, each with zeros behind its rows and behind itself, which serve
as the padding of what comes next. What one element of the filters meets is then the same row, shifted: the
columns of im2col are long copies instead of one for each row of an image, and one product covers many
images. At the ends of rows it also computes sums that nobody asked for; they are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from dl4all.ops.conv.window import Window
from dl4all.ops.core.tensor_base import Shape, contiguous_strides

NDArray = npt.NDArray[Any]
BLOCK_BYTES = 2**21  # of columns at a time: what a core's cache holds
LEAST_BLOCK = 512  # columns, which are worth it that BLAS reads all filters again
LEAST_ROWS = 16  # of columns, in a convolution whose products are worth their preparation
LEAST_FILTERS = 4  # of an input's gradient, likewise
MANY_FILTERS = 256
MOST_WASTE = 1.5  # computed places for each that is asked for


class Layout(NamedTuple):
    """How images lie in a row."""

    size: Shape  # of an image
    extents: Shape  # of an image with its zeros
    out_size: Shape
    win: Window

    @property
    def image(self) -> int:
        return math.prod(self.extents)

    @property
    def shifts(self) -> Shape:
        """How far neighbouring elements of a filter are apart, along each axis."""
        steps = contiguous_strides(self.extents)
        return tuple(step * d for step, d in zip(steps, self.win.dilation, strict=True))

    @property
    def reach(self) -> int:
        """How far the last element of a filter is behind its first."""
        return sum(shift * (k - 1) for shift, k in zip(self.shifts, self.win.kernel, strict=True))

    def places(self, images: int) -> int:
        """From the first place of a filter to the last one that counts."""
        last = sum(s * (n - 1) for s, n in zip(contiguous_strides(self.extents), self.out_size, strict=True))
        return (images - 1) * self.image + last + 1

    def inside(self, row: NDArray, images: int, first: Shape, size: Shape) -> NDArray:
        """The part of that size of each image, as (images, channels, ...), from (channels, elements)."""
        planes = row[:, : images * self.image].reshape(len(row), images, *self.extents)
        part = tuple(slice(low, low + extent) for low, extent in zip(first, size, strict=True))
        return planes[(slice(None), slice(None), *part)].swapaxes(0, 1)


def layout(size: Shape, win: Window) -> Layout | None:
    """How images of that size are best laid out; None if another way is better."""
    out_size = win.output_size(size)
    margins = tuple(map(max, win.before, win.behind))
    extents = tuple(extent + margin for extent, margin in zip(size, margins, strict=True))
    fits = all(out <= extent for out, extent in zip(out_size, extents, strict=True))
    if win.moves_nothing or set(win.stride) != {1} or min(out_size) < 1 or not fits:
        return None
    if math.prod(extents) > MOST_WASTE * math.prod(out_size):
        return None
    return Layout(size, extents, out_size, win)


def turned(win: Window) -> Window | None:
    """The window with which the gradient of an input is the convolution of the output's, if there is one."""
    spans = [d * (k - 1) for d, k in zip(win.dilation, win.kernel, strict=True)]
    before, behind = (
        tuple(span - pad for span, pad in zip(spans, pads, strict=True)) for pads in (win.before, win.behind)
    )
    if set(win.stride) != {1} or min(*before, *behind) < 0:
        return None
    return Window(win.kernel, win.stride, before, behind, win.dilation)


def forward(x: NDArray, w: NDArray, bias: NDArray | None, lay: Layout, groups: int) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, C / groups, ...)."""
    images, filters = len(x), len(w)
    result: NDArray = np.empty((images, filters, *lay.out_size), x.dtype)
    if not images:
        return result
    row = _row(x, lay)
    channels, some = len(row) // groups, filters // groups
    found = np.empty((some, images * lay.image), x.dtype)
    for group in range(groups):
        out = slice(group * some, (group + 1) * some)
        matrix = w[out].reshape(some, -1)
        for places, columns in _columns(row[group * channels :][:channels], lay, images):
            np.matmul(matrix, columns, out=found[:, places])
        wanted = lay.inside(found, images, (0,) * len(lay.size), lay.out_size)
        if bias is None:
            result[:, out] = wanted
        else:
            np.add(wanted, bias[out].reshape(-1, *(1,) * len(lay.size)), out=result[:, out])
    return result


def weight_gradient(g: NDArray, x: NDArray, lay: Layout, groups: int) -> NDArray:
    """The gradient with respect to filters; `x` must be finite: what nobody asked for counts 0 times."""
    images, filters = g.shape[:2]
    row, of_output = _row(x, lay), np.zeros((filters, images * lay.image), g.dtype)
    lay.inside(of_output, images, (0,) * len(lay.size), lay.out_size)[...] = g
    channels, some = len(row) // groups, filters // groups
    # With few filters first, BLAS takes up to 1.6 times as long; with many, turning the result does.
    turned = some < MANY_FILTERS
    found: NDArray = np.empty((groups, some, channels * math.prod(lay.win.kernel)), g.dtype)
    for group in range(groups):
        out, sums = slice(group * some, (group + 1) * some), None
        for places, columns in _columns(row[group * channels :][:channels], lay, images):
            of_these = of_output[out, places]
            product = np.matmul(columns, of_these.T) if turned else np.matmul(of_these, columns.T)
            sums = product if sums is None else np.add(sums, product, out=sums)
        assert sums is not None
        found[group] = sums.T if turned else sums
    return found.reshape(filters, channels, *lay.win.kernel)


def _row(x: NDArray, lay: Layout) -> NDArray:
    images, channels = x.shape[:2]
    row = np.zeros((channels, images * lay.image + lay.reach), x.dtype)
    lay.inside(row, images, lay.win.before, lay.size)[...] = x
    return row


def _columns(row: NDArray, lay: Layout, images: int) -> Iterator[tuple[slice, NDArray]]:
    """Some places, and the columns (channels * elements of a filter, places) that are met there."""
    kernel, last = lay.win.kernel, lay.places(images)
    rows = len(row) * math.prod(kernel)
    along = row.strides[1]
    strides = (row.strides[0], *(shift * along for shift in lay.shifts), along)
    shifted = as_strided(row, (len(row), *kernel, last), strides, writeable=False)
    count = min(last, max(LEAST_BLOCK, BLOCK_BYTES // (rows * row.itemsize)))
    memory = np.empty((rows, count), row.dtype)
    for first in range(0, last, count):
        places = slice(first, min(first + count, last))
        columns = memory[:, : places.stop - first]
        np.copyto(columns.reshape(len(row), *kernel, -1), shifted[..., places])
        yield places, columns
