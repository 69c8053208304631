"""The tiles of Winograd's convolution: read from images or from gradients of results, and transformed.

Vectors have a channel in each lane. Rows of as many columns as :data:`COLUMNS` are read channel by channel
and transposed, and all tiles that they hold are transformed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from dl4all.host_kernels.conv.winograd_transforms import (
    RESULTS,
    SIDE,
    both_axes,
    transform_gradient,
    transform_image,
)
from dl4all.host_kernels.lib.counts import larger, smaller
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.host_kernels.lib.library import NAME, shared
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

T = TypeVar("T")

ELEMENT = "float"
COLUMNS = 16
"""Of planes that are transposed at a time."""

Span = tuple[IrValue, IrValue]
"""The number of a first one, and how many there are; or rows and columns."""


class TileRun(NamedTuple):
    """Tiles of one row of an image."""

    image: IrValue
    row: IrValue  # of the first result
    column: IrValue
    first: IrValue  # number of the first tile, counted from the first of all
    tiles: IrValue


class Planes(NamedTuple):
    """Channels of images from the first that counts on, or of gradients."""

    address: IrValue
    channels: IrValue
    image_stride: IrValue
    channel_stride: IrValue
    row_stride: IrValue
    height: IrValue
    width: IrValue
    top: IrValue  # of the first tile
    left: IrValue


@contextmanager
def runs(code: Code, grid: Span, tiles: Span, most: int) -> Iterator[TileRun]:
    """Loops over tiles that lie side by side.

    Args:
        code: is written to.
        grid: rows and columns of tiles of an image.
        tiles: of all images, counted row by row.
        most: tiles at a time.
    """
    (high, wide), (first, count) = grid, tiles
    end = first + count
    with code.loop(first // wide, (end - 1) // wide + 1) as line:
        before = line * wide
        start = larger(code, first, before)
        stop = smaller(code, end, before + wide)
        with code.loop(start, stop, most) as tile:
            row, column = line % high * RESULTS, (tile - before) * RESULTS
            yield TileRun(line // high, row, column, tile - first, smaller(code, stop - tile, most))


def transform_planes(
    code: Code,
    side: int,
    planes: Planes,
    grid: Span,
    tiles: Span,
    target: IrValue,
    step: IrValue,
    pitch: IrValue,
) -> None:
    """Write code that transforms tiles.

    Args:
        code: is written to.
        side: elements of a tile along an axis: those of an image, or the gradients of results.
        planes: what tiles are read from; elements outside are 0.
        grid, tiles: as of :func:`runs`.
        target: of the first element of all tiles.
        step: from there to the next element.
        pitch: from a tile's channels to the next one's.
    """
    shared(planes_function, side).run(code, *planes, *grid, *tiles, target, step, pitch)


def planes_function(module: IrModule, side: int) -> Code:
    """Writes the function of :func:`transform_planes`, whose parameters are the values given there."""
    lanes = vector_lanes(ELEMENT)
    type = vector(ELEMENT, lanes)
    transform = {SIDE: transform_image, RESULTS: transform_gradient}[side]
    types = ("ptr", *["i64"] * (len(Planes._fields) + 3), "ptr", "i64", "i64")
    with module.function(NAME, *types, exported=True) as code:
        count = len(Planes._fields)
        planes = Planes(*code.parameters[:count])
        high, wide, first, tiles, target, step, pitch = code.parameters[count:]
        patch = code.local(ELEMENT, side * COLUMNS * lanes)  # rows of columns of channels
        with runs(code, (high, wide), (first, tiles), (COLUMNS - side) // RESULTS + 1) as run:
            top, left = run.row + planes.top, run.column + planes.left
            start = run.image * planes.image_stride + top * planes.row_stride + left
            with code.loop(0, planes.channels, lanes) as c:
                source = code.at(planes.address, start, ELEMENT)
                channels = [smaller(code, c + lane, planes.channels - 1) for lane in range(lanes)]
                places = [code.at(source, channel * planes.channel_stride, ELEMENT) for channel in channels]
                with code.loop(0, side) as r:
                    limit = code.select(code.unsigned_less(top + r, planes.height), planes.width, 0)
                    for k in range(0, COLUMNS, lanes):
                        mask = inside(code, left + k, limit, lanes)
                        place = r * planes.row_stride + k
                        values = [code.load(address, place, type, mask) for address in places]
                        for i, value in enumerate(transposed(code, values)):
                            code.store(value, patch, (r * COLUMNS + (k + i)) * lanes)
                with code.loop(0, run.tiles) as j:
                    source = code.at(patch, j * RESULTS * lanes, ELEMENT)
                    elements = [
                        code.load(source, (r * COLUMNS + k) * lanes, type)
                        for r, k in itertools.product(range(side), repeat=2)
                    ]
                    own = code.at(target, (run.first + j) * pitch + c, ELEMENT)
                    for i, value in enumerate(itertools.chain(*both_axes(code, transform, square(elements)))):
                        code.store(value, own, step * i)
        return code


def square(elements: Sequence[T]) -> list[Sequence[T]]:
    """The rows of a square, one after the other.

    >>> square([1, 2, 3, 4])
    [[1, 2], [3, 4]]
    """
    side = round(len(elements) ** 0.5)
    return [elements[first : first + side] for first in range(0, len(elements), side)]


def inside(code: Code, first: IrValue, limit: IrValue, lanes: int) -> IrValue:
    """The mask of lanes that lie from 0 to `limit`, counted from `first`."""
    start, end = (code.splat(code.convert(value, "i32"), lanes) for value in (first, limit))
    return code.unsigned_less(code.lane_numbers("i32", lanes) + start, end)
