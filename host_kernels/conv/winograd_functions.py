"""The functions that all kernels of Winograd's convolution call, whatever follows the sums: compiled once.

The first parameter of each is the address of :class:`WinogradNumbers`.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

from dl4all.host_kernels.conv.slots import KernelSlots
from dl4all.host_kernels.conv.winograd_tiles import (
    COLUMNS,
    ELEMENT,
    inside,
    square,
)
from dl4all.host_kernels.conv.winograd_transforms import (
    ELEMENTS,
    RESULTS,
    both_axes,
    transform_filter,
    transform_result,
)
from dl4all.host_kernels.lib.counts import smaller
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.host_kernels.lib.library import NAME
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.linalg.gemm_tiles import tile_sizes
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

TAPS = 9
FETCHED_CHANNELS = 8
"""Channels between the filters that are transformed and those that are fetched from far memory."""


class WinogradNumbers(NamedTuple):
    """The numbers that slots of a kernel hold, in this order."""

    channels: int
    filters: int
    height: int  # of an image
    width: int
    out_height: int
    out_width: int
    image_stride: int
    channel_stride: int
    row_stride: int
    filter_stride: int
    filter_channel: int
    bias_stride: int
    top: int  # place of the first tap for the first result
    left: int
    tiles_high: int
    tiles_wide: int
    tiles: int
    block_tiles: int
    block_channels: int
    channel_pitch: int  # of transformed images
    block_filters: int
    grain: int


NUMBERS = KernelSlots((), WinogradNumbers._fields)


def filters_function(module: IrModule, flipped: bool) -> Code:
    """Writes a function that transforms a vector of filters into a panel, as matrix products read it.

    Its parameters are the numbers, the first filter at the first channel, how many filters and channels
    there are, the target, and the distance of elements there.

    Args:
        module: gets the function.
        flipped: whether taps count from the last one.
    """
    lanes, width = vector_lanes(ELEMENT), tile_sizes(ELEMENT).columns
    with module.function(NAME, "ptr", "ptr", "i64", "i64", "ptr", "i64", exported=True) as code:
        _, w, filters, channels, target, step = code.parameters
        rows = _filter_rows(code, w, filters)
        with code.loop(0, channels) as c:
            later = (c + FETCHED_CHANNELS) * NUMBERS.read(code, "filter_channel")
            for row in rows:
                code.prefetch(row, later, ELEMENT)
            taps: list[IrValue] = []
            for k in range(0, TAPS, lanes):
                mask = code.first_lanes(code.constant("i64", TAPS - k), lanes)
                place = c * NUMBERS.read(code, "filter_channel") + k
                taps += transposed(
                    code, [code.load(row, place, vector(ELEMENT, lanes), mask) for row in rows]
                )
            taps = taps[TAPS - 1 :: -1] if flipped else taps[:TAPS]
            own = code.at(target, c * width, ELEMENT)
            for i, value in enumerate(itertools.chain(*both_axes(code, transform_filter, square(taps)))):
                code.store(value, own, step * i)
        return code


def _filter_rows(code: Code, w: IrValue, count: IrValue) -> list[IrValue]:
    """The addresses of a vector of filters; past the last one, of the last one."""
    stride = NUMBERS.read(code, "filter_stride")
    numbers = [smaller(code, count - 1, lane) for lane in range(vector_lanes(ELEMENT))]
    return [code.at(w, number * stride, ELEMENT) for number in numbers]


def results_function(module: IrModule, flipped: bool) -> Code:
    """Writes a function that transforms the products of a :class:`TileRun` of tiles back, for some filters.

    Its parameters are the numbers, the images, the first filter, the first tile's products, the distance of
    their elements and of those of tiles, the run but its first tile, how many filters there are, and the
    target: for a vector of filters, rows of columns of results.

    Args:
        module: gets the function.
        flipped: whether taps count from the last one.
    """
    lanes = vector_lanes(ELEMENT)
    type = vector(ELEMENT, lanes)
    types = (*["ptr"] * 4, *["i64"] * 7, "ptr")
    repair = _repair_function(module, flipped)
    with module.function(NAME, *types, exported=True) as code:
        numbers, x, w, products, step, pitch, image, row, column, tiles, filters, target = code.parameters
        by_place = code.local(ELEMENT, RESULTS * COLUMNS * lanes)
        counted = code.first_lanes(filters, lanes)
        with code.loop(0, tiles) as j:
            source = code.at(products, j * pitch, ELEMENT)
            loaded = [code.load(source, step * i, type) for i in range(ELEMENTS)]
            sums = both_axes(code, transform_result, square(loaded))
            place = code.at(by_place, j * RESULTS * lanes, ELEMENT)
            total = code.constant(type, 0.0)
            for r, k in itertools.product(range(RESULTS), repeat=2):
                code.store(sums[r][k], place, (r * COLUMNS + k) * lanes)
                total = total + sums[r][k]
            total = code.select(counted, total, 0.0)
            with code.if_(code.any_of((total - total).differs(0.0))):
                code.run(repair, numbers, x, w, place, image, row, column + j * RESULTS, filters)
        with code.loop(0, RESULTS) as line:
            for first in range(0, COLUMNS, lanes):
                start = (line * COLUMNS + first) * lanes
                values = [code.load(by_place, start + lane * lanes, type) for lane in range(lanes)]
                for lane, value in enumerate(transposed(code, values)):
                    code.store(value, target, line * COLUMNS + (lane * RESULTS * COLUMNS + first))
        return code


def _repair_function(module: IrModule, flipped: bool) -> Code:
    """The function that adds up the products of a tile, for a vector of filters.

    Its parameters are the numbers, the images, the first filter, the target (rows of columns of filters), the
    image, the first result's row and column, and how many filters there are.
    """
    lanes = vector_lanes(ELEMENT)
    high = lanes // RESULTS  # rows of a tile in a vector
    with module.function("repair", *["ptr"] * 4, *["i64"] * 4) as code:
        _, x, w, target, image, row, column, count = code.parameters
        read = functools.partial(NUMBERS.read, code)
        own = code.at(x, image * read("image_stride"), ELEMENT)
        filters = _filter_rows(code, w, count)
        with code.loop(0, RESULTS, high) as r0:
            sums = [code.variable(vector(ELEMENT, lanes), 0.0) for _ in range(lanes)]
            with code.loop(0, read("channels")) as c, code.loop(0, 3) as tap_y, code.loop(0, 3) as tap_x:
                left = column + read("left") + tap_x
                pieces = []
                for r in range(high):
                    y = row + read("top") + r0 + r + tap_y
                    limit = code.select(code.unsigned_less(y, read("height")), read("width"), 0)
                    start = c * read("channel_stride") + y * read("row_stride") + left
                    mask = inside(code, left, limit, RESULTS)
                    pieces.append(code.load(own, start, vector(ELEMENT, RESULTS), mask))
                while len(pieces) > 1:
                    pairs = zip(pieces[::2], pieces[1::2], strict=True)
                    together = range(2 * lanes // len(pieces))
                    pieces = [code.shuffle(a, b, together) for a, b in pairs]
                tap = tap_y * 3 + tap_x
                place = c * read("filter_channel") + (TAPS - 1 - tap if flipped else tap)
                for total, filter in zip(sums, filters, strict=True):
                    factor = code.splat(code.load(filter, place, ELEMENT), lanes)
                    total.value = code.intrinsic("fmuladd", factor, pieces[0], total.value)
            for i, value in enumerate(transposed(code, [total.value for total in sums])):
                code.store(value, target, ((r0 + i // RESULTS) * COLUMNS + i % RESULTS) * lanes)
        return code
