"""The cut of compiled convolutions: into parts, chunks for threads, and blocks for caches.

A convolution has one part. The gradient of the input of a strided one has a part for each remainder of a
place and the strides, which meets its own elements of the filters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dl4all.host_kernels.conv.columns import Columns
from dl4all.host_kernels.lib.dot_tiles import DotTile
from dl4all.ops.conv.window import Window
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.tensor_base import Shape

MOST_ROWS = 192
"""Rows of columns at a time: with a tile's columns, most of a core's first cache."""
MOST_TAPS = 256
MOST_TILES = 8
"""Tiles of columns in a chunk: the filters are read from the second cache for each."""
LEAST_FILTERS = 64
"""Of a chunk, if there are that many."""
CHUNKS = 16
"""Into how many chunks large work is to be cut."""
GRAIN = 400_000
"""Products of a chunk, at least: some microseconds."""
MOST_PARTS = 16


class Filters(NamedTuple):
    """The layout of filters in memory: strides."""

    group: int
    row: int
    channel: int
    taps: tuple[int, int, int]


class Extents(NamedTuple):
    """Extents of a convolution."""

    images: int
    groups: int
    filters: int  # of a group
    channels: int  # of a group


class Part(NamedTuple):
    """Columns, and the filters that they are multiplied with."""

    columns: Columns
    filters: Filters
    first: int  # element of the filters


class PartPlan(NamedTuple):
    """The cut of a part. Slots of a kernel hold these numbers, after those of the columns."""

    group_stride: int  # of images
    filter_first: int
    filter_group: int
    filter_row: int
    filter_channel: int
    filter_outer: int  # two axes of taps
    filter_inner: int
    outer: int
    inner: int
    merged: int  # whether all taps of all channels are one axis
    runs: int  # of places that follow each other in the result
    places: int  # of a run
    image_places: int
    run_images: int
    chunk_places: int
    filters: int
    chunk_filters: int
    channels: int
    block_channels: int
    groups: int  # 0 if there is nothing to add up
    out_first: int
    out_run: int  # strides of the results
    out_row: int
    ahead: int  # how far in an image the next tile's columns are from this one's
    grain: int


def three(strides: Sequence[int]) -> tuple[int, int, int]:
    """Strides of three axes, of which the first may be missing."""
    first, second, third = (0,) * (3 - len(strides)) + tuple(strides)
    return first, second, third


def gradient_parts(
    window: Window, size: Shape, strides: tuple[int, int, int, int, int], out_size: Shape, filters: Filters
) -> list[Part]:
    """The parts of the gradient of an input.

    Args:
        window: of the convolution, with three axes.
        size: of the gradients of its results.
        strides: of these.
        out_size: of the input.
        filters: from the results' channels to the input's.

    Raises:
        NoKernel: there would be too many.
    """
    if math.prod(window.stride) > MOST_PARTS:
        raise NoKernel("too many remainders")
    parts = []
    for remainders in _remainders(window.stride):
        axes = [
            _gradient_axis(*numbers)
            for numbers in zip(
                remainders,
                window.kernel,
                window.stride,
                window.before,
                window.dilation,
                out_size,
                strict=True,
            )
        ]
        counts, firsts, taps, steps, offsets, deltas = zip(*axes, strict=True)
        columns = Columns(strides, size, counts, taps, (1, 1, 1), offsets, deltas)
        first = sum(tap * stride for tap, stride in zip(firsts, filters.taps, strict=True))
        own = three([step * stride for step, stride in zip(steps, filters.taps, strict=True)])
        parts.append(Part(columns, filters._replace(taps=own), first))
    return parts


def _remainders(strides: Shape) -> list[Shape]:
    return [(i, j, k) for i in range(strides[0]) for j in range(strides[1]) for k in range(strides[2])]


def _gradient_axis(
    remainder: int, kernel: int, stride: int, before: int, dilation: int, size: int
) -> tuple[int, int, int, int, int, int]:
    """Places with a remainder, the first tap that they meet, how many, each how many on, offset and delta."""
    count = -(-max(0, size - remainder) // stride)
    period = stride // math.gcd(stride, dilation)
    for first in range(min(period, kernel)):
        offset, rest = divmod(remainder + before - first * dilation, stride)
        if rest == 0:
            return count, first, -(-(kernel - first) // period), period, offset, -period * dilation // stride
    return count, 0, 0, period, 0, 0


def planned(part: Part, extents: Extents, tile: DotTile, out_first: int, *, gathered: bool) -> PartPlan:
    """The cut of a part.

    Args:
        part: says what is added up.
        extents: of the convolution.
        tile: of registers.
        out_first: number of its first result, in scratch memory.
        gathered: whether the results of all images lie side by side there.

    Raises:
        NoKernel: the filters have gaps.
    """
    columns, filters = part.columns, part.filters
    taps = columns.rows
    outer, inner, outer_stride, inner_stride = _axes(columns.taps, filters.taps)
    merged = outer == 1 and (inner == 1 or filters.channel == inner * inner_stride)
    if inner == 1:
        inner_stride = filters.channel
    run_images = extents.images if gathered else 1
    runs = extents.images // run_images
    places = columns.places * run_images
    chunk_places, chunk_filters = _cut(places, extents.filters, runs * extents.groups, tile)
    blocks = -(-extents.channels // max(1, MOST_ROWS // max(1, taps)))
    pitch = -(-places // tile.lanes) * tile.lanes if gathered else places
    products = chunk_places * chunk_filters * extents.channels * taps
    lowest = columns.offset[1] + (columns.taps[1] - 1) * max(0, columns.delta[1])
    return PartPlan(
        group_stride=extents.channels * columns.strides[1],
        filter_first=part.first,
        filter_group=filters.group,
        filter_row=filters.row,
        filter_channel=filters.channel,
        filter_outer=outer_stride,
        filter_inner=inner_stride,
        outer=outer,
        inner=inner,
        merged=int(merged),
        runs=runs,
        places=places,
        image_places=columns.places,
        run_images=run_images,
        chunk_places=chunk_places,
        filters=extents.filters,
        chunk_filters=chunk_filters,
        channels=extents.channels,
        block_channels=-(-extents.channels // blocks),
        groups=extents.groups if taps and places else 0,
        out_first=out_first,
        out_run=extents.groups * extents.filters * pitch,
        out_row=pitch,
        ahead=tile.columns + lowest * columns.size[2],
        grain=max(1, GRAIN // max(1, products)),
    )


def _axes(taps: Shape, strides: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Three axes of filters as two: extents and strides.

    Raises:
        NoKernel: there are more.
    """
    found: list[tuple[int, int]] = []
    for extent, stride in zip(taps, strides, strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = found[-1][0] * extent, stride
        else:
            found.append((extent, stride))
    if len(found) > 2:
        raise NoKernel("filters with gaps along two axes")
    (outer, outer_stride), (inner, inner_stride) = [(1, 0)] * (2 - len(found)) + found
    return outer, inner, outer_stride, inner_stride


def _cut(places: int, filters: int, times: int, tile: DotTile) -> tuple[int, int]:
    """Places and filters of a chunk, where all of them are needed so many times."""
    tiles = max(1, -(-places // tile.columns))
    chunk_tiles, chunk_filters = min(tiles, MOST_TILES), filters

    def chunks() -> int:
        return times * -(-tiles // chunk_tiles) * -(-filters // chunk_filters)

    while chunk_filters >= 2 * LEAST_FILTERS and chunks() < CHUNKS:
        chunk_filters = -(-chunk_filters // 2)
    while chunk_tiles > 2 and chunks() < CHUNKS:
        chunk_tiles = -(-chunk_tiles // 2)
    chunk_filters = min(filters, -(-chunk_filters // tile.rows) * tile.rows)
    return chunk_tiles * tile.columns, chunk_filters
