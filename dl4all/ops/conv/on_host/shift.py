"""Convolution with stride 1 on the host, by products with shifted images.

All images of a channel lie in one long row, each with zeros behind its rows and behind itself, which are also
the padding of the next row and image. What one element of the filters meets is then the same row, shifted:
the columns of im2col are long copies instead of one copy for each row of an image, and one product covers
many images. At the ends of rows this also computes sums that are not part of the result; they are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dl4all.ops.conv.scratch import NEW, Scratch
from dl4all.ops.conv.window import NDArray, Window
from dl4all.ops.core.tensor_base import Shape, contiguous_strides

# Columns at a time: half of a core's cache. Filters that do not fit beside them are read again for each
# block, which is to have many columns then, and so are sums of weights' gradients.
BLOCK_BYTES, MIN_BLOCK_COLUMNS = 2**19, 128
LARGE_BLOCK_BYTES, MIN_LARGE_BLOCK_COLUMNS = 2**21, 512
CACHED_FILTERS = 2**22  # bytes
MIN_ROWS = 16  # Rows of columns, in a convolution whose products are worth their preparation.
MIN_CHANNELS = 4  # The same for the gradient of an input: channels in a group.
MANY_FILTERS = 256
MAX_WASTE = 1.5  # Computed results for each result that is needed.


class RowLayout(NamedTuple):
    """The order of images in a row."""

    size: Shape  # of an image
    extents: Shape  # of an image with its zeros
    out_size: Shape
    win: Window

    @property
    def image(self) -> int:
        """Elements of an image with its zeros."""
        return math.prod(self.extents)

    @property
    def shifts(self) -> Shape:
        """The distances of neighbouring elements of a filter, along each axis."""
        strides = contiguous_strides(self.extents)
        return tuple(stride * d for stride, d in zip(strides, self.win.dilation, strict=True))

    @property
    def reach(self) -> int:
        """The distance of the last element of a filter from its first."""
        return sum(shift * (k - 1) for shift, k in zip(self.shifts, self.win.kernel, strict=True))

    def positions(self, images: int) -> int:
        """The number of positions of a filter, from the first result to the last."""
        last = sum(s * (n - 1) for s, n in zip(contiguous_strides(self.extents), self.out_size, strict=True))
        return (images - 1) * self.image + last + 1

    def inside(self, row: NDArray, images: int, first: Shape, size: Shape) -> NDArray:
        """The part of that size of each image, as (images, channels, ...), from (channels, elements)."""
        planes = row[:, : images * self.image].reshape(len(row), images, *self.extents)
        part = tuple(slice(low, low + extent) for low, extent in zip(first, size, strict=True))
        return planes[(slice(None), slice(None), *part)].swapaxes(0, 1)

    def results(self, row: NDArray, images: int) -> NDArray:
        """The results of a convolution in a row, as (images, filters, ...)."""
        return self.inside(row, images, (0,) * len(self.size), self.out_size)


def layout(size: Shape, win: Window) -> RowLayout | None:
    """The layout of images of that size; None if im2col is better."""
    out_size = win.output_size(size)
    margins = tuple(map(max, win.before, win.behind))
    extents = tuple(extent + margin for extent, margin in zip(size, margins, strict=True))
    fits = all(out <= extent for out, extent in zip(out_size, extents, strict=True))
    if win.is_pointwise or set(win.stride) != {1} or min(out_size) < 1 or not fits:
        return None
    if math.prod(extents) > MAX_WASTE * math.prod(out_size):
        return None
    return RowLayout(size, extents, out_size, win)


def forward_layout(size: Shape, weight: Shape, win: Window) -> RowLayout | None:
    """The layout for a convolution with a weight of that shape; None if im2col is better."""
    return layout(size, win) if math.prod(weight[1:]) >= MIN_ROWS else None


def input_gradient_layout(out_size: Shape, weight: Shape, win: Window) -> RowLayout | None:
    """The layout of results of that size for the gradient of the input; None if im2col is better."""
    flipped = _flipped_window(win)
    return None if flipped is None or weight[1] < MIN_CHANNELS else layout(out_size, flipped)


def forward(
    x: NDArray,
    w: NDArray,
    bias: NDArray | None,
    layout: RowLayout,
    groups: int,
    out: NDArray | None = None,
    scratch: Scratch = NEW,
) -> NDArray:
    """The convolution of images (N, C, ...) with filters (F, C / groups, ...), in `out` if given."""
    images, filters = len(x), len(w)
    result: NDArray = np.empty((images, filters, *layout.out_size), x.dtype) if out is None else out
    if not images:
        return result
    row = _row(x, layout, scratch)
    channels, group_filters = len(row) // groups, filters // groups
    products = scratch.take("products", (group_filters, images * layout.image), x.dtype)
    for group in range(groups):
        mine = slice(group * group_filters, (group + 1) * group_filters)
        matrix = w[mine].reshape(group_filters, -1)
        channel_rows = row[group * channels :][:channels]
        small = matrix.nbytes <= CACHED_FILTERS
        for positions, columns in _columns(channel_rows, layout, images, scratch, small=small):
            np.matmul(matrix, columns, out=products[:, positions])
        results = layout.results(products, images)
        if bias is None:
            result[:, mine] = results
        else:
            np.add(results, bias[mine].reshape(-1, *(1,) * len(layout.size)), out=result[:, mine])
    return result


def input_gradient(g: NDArray, w: NDArray, layout: RowLayout, groups: int) -> NDArray:
    """The gradient with respect to the input, as a convolution with flipped filters."""
    return forward(g, _flipped_filters(w, groups), None, layout, groups)


def weight_gradient(g: NDArray, x: NDArray, layout: RowLayout, groups: int) -> NDArray:
    """The gradient with respect to the filters.

    `x` must be finite, for the sums that are not part of the result are multiplied by 0.
    """
    images, filters = g.shape[:2]
    row, gradient_row = _row(x, layout), np.zeros((filters, images * layout.image), g.dtype)
    layout.results(gradient_row, images)[...] = g
    channels, group_filters = len(row) // groups, filters // groups
    # With few filters first, BLAS takes up to 1.6 times as long; with many, transposing the result does.
    transposed = group_filters < MANY_FILTERS
    result: NDArray = np.empty((groups, group_filters, channels * math.prod(layout.win.kernel)), g.dtype)
    for group in range(groups):
        out, sums = slice(group * group_filters, (group + 1) * group_filters), None
        for positions, columns in _columns(row[group * channels :][:channels], layout, images):
            gradients = gradient_row[out, positions]
            product = np.matmul(columns, gradients.T) if transposed else np.matmul(gradients, columns.T)
            sums = product if sums is None else np.add(sums, product, out=sums)
        assert sums is not None
        result[group] = sums.T if transposed else sums
    return result.reshape(filters, channels, *layout.win.kernel)


def _flipped_window(win: Window) -> Window | None:
    """The window with which the gradient of an input is a convolution of the output's gradient, if any."""
    spans = [d * (k - 1) for d, k in zip(win.dilation, win.kernel, strict=True)]
    before, behind = (
        tuple(span - pad for span, pad in zip(spans, pads, strict=True)) for pads in (win.before, win.behind)
    )
    if set(win.stride) != {1} or min(*before, *behind) < 0:
        return None
    return Window(win.kernel, win.stride, before, behind, win.dilation)


def _flipped_filters(w: NDArray, groups: int) -> NDArray:
    """Filters (C, F / groups, ...) from the output's channels to the input's."""
    filters, channels = w.shape[:2]
    parts = w.reshape(groups, filters // groups, channels, *w.shape[2:]).swapaxes(1, 2)
    flipped = (slice(None),) * 3 + (slice(None, None, -1),) * (w.ndim - 2)
    return parts[flipped].reshape(groups * channels, filters // groups, *w.shape[2:])


def _row(x: NDArray, layout: RowLayout, scratch: Scratch = NEW) -> NDArray:
    """The images of each channel in one row."""
    images, channels = x.shape[:2]
    row = scratch.zeros(layout, (channels, images * layout.image + layout.reach), x.dtype)
    layout.inside(row, images, layout.win.before, layout.size)[...] = x
    return row


def _columns(
    row: NDArray, layout: RowLayout, images: int, scratch: Scratch = NEW, *, small: bool = False
) -> Iterator[tuple[slice, NDArray]]:
    """Blocks of positions, and the columns that the filters meet there.

    Shape:
        (channels * elements of a filter, positions)
    """
    kernel, count = layout.win.kernel, layout.positions(images)
    rows = len(row) * math.prod(kernel)
    itemsize = row.strides[1]
    strides = (row.strides[0], *(shift * itemsize for shift in layout.shifts), itemsize)
    shifted = as_strided(row, (len(row), *kernel, count), strides, writeable=False)
    nbytes, least = (
        (BLOCK_BYTES, MIN_BLOCK_COLUMNS) if small else (LARGE_BLOCK_BYTES, MIN_LARGE_BLOCK_COLUMNS)
    )
    block = min(count, max(least, nbytes // (rows * row.itemsize)))
    memory = scratch.take("columns", (rows, block), row.dtype)
    for first in range(0, count, block):
        positions = slice(first, min(first + block, count))
        columns = memory[:, : positions.stop - first]
        np.copyto(columns.reshape(len(row), *kernel, -1), shifted[..., positions])
        yield positions, columns
