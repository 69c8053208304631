"""Winograd's convolution with 3x3 filters and stride 1, and gradients of the inputs of such convolutions.

The transforms (:mod:`winograd_transforms`) have channels or filters in the lanes of vectors. Transformed
filters go to scratch memory, in panels as matrix products read them. Then threads take blocks of tiles: the
images of a block are transformed, the products of each of the 36 elements are summed over channels, a product
of matrices in a core's second cache, and transformed back. A number that is not finite would spread over its
tile; results of such tiles are added up as a plain convolution does it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from dl4all.host_kernels.conv.epilogue import Following, SumsEpilogue, epilogue, launch_with_epilogue
from dl4all.host_kernels.conv.parts import CHUNKS, GRAIN, LEAST_FILTERS, Extents, Part
from dl4all.host_kernels.conv.slots import KernelSlots
from dl4all.host_kernels.conv.winograd_transforms import (
    ELEMENTS,
    RESULTS,
    SIDE,
    both_axes,
    transform_filter,
    transform_image,
    transform_result,
)
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.linalg.gemm_tiles import ADD, BLOCK, gemm_tiles, tile_sizes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.ops.core.tensor_base import Shape
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector
from dl4all.runtime.cpu.llvm.provider import linked

ELEMENT = "float"
ROOM = 3072
"""Channels and filters of all tiles of a block; times 36 floats, that is most of half a megabyte."""
BLOCK_TILES = 16
"""Tiles of a block, at most, and half as many where there are few: rows of products, two tiles of registers
high."""
COLUMNS = 16
"""Of an image, or of results, that are transposed at a time."""
TILES_READ, TILES_WRITTEN = (COLUMNS - 2) // RESULTS, COLUMNS // RESULTS
"""Tiles that so many columns of an image, and of results, have side by side."""
CHANNELS, FILTER_GRAIN = 16, 8
"""Channels whose filters are transformed for a vector of filters, and how many of these a thread takes."""

TRANSFORM, FILTER, FAR_FILTER = 350, 600, 1500
"""Products of a convolution that take as long as the transforms of a tile's elements for a channel or a
filter, as those of a filter for a channel, and as those where all filters leave the caches."""
CACHED_FILTERS = 2**17


class WinogradForm(NamedTuple):
    """The properties on which the text of a kernel depends."""

    flipped: bool  # whether taps count from the last one
    epilogue: SumsEpilogue


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


def winograd_launch(
    out: ArrayLayout,
    operands: Sequence[ArrayLayout],
    extents: Extents,
    parts: Sequence[Part],
    following: Following | None,
    *,
    bias: bool,
) -> HostLaunch | None:
    """The launch of a convolution, as `launch_of` is asked for it; None where sums of products are faster."""
    columns, filters, _ = parts[0]
    taken = (
        len(parts) == extents.groups == columns.size[0] == columns.out_size[0] == 1
        and out.dtype.name == "float32"
        and columns.taps == (1, 3, 3)
        and columns.step == (1, 1, 1)
        and columns.delta[1:] in ((1, 1), (-1, -1))
        and columns.strides[4] == 1
        and filters.taps[1:] == (3, 1)
    )
    if not taken or not is_faster(extents, columns.out_size):
        return None
    numbers = _numbers(parts[0], extents, operands[-1].strides[0])
    return launch_with_epilogue(
        winograd,
        (columns.delta[2] < 0,),
        len(operands),
        numbers,
        out,
        following,
        bias=bias,
        scratch=ELEMENTS * _filter_elements(numbers) * SIZES[ELEMENT],
        work=ELEMENTS * numbers.tiles * numbers.channels * numbers.filters // 8,
    )


def is_faster(extents: Extents, size: Shape) -> bool:
    """Whether results of this size take less time than by sums: by counts of products that take as long."""
    lanes = vector_lanes(ELEMENT)
    images, _, filters, channels = extents
    whole = [-(-count // lanes) * lanes for count in (filters, channels)]
    tiles = images * math.prod(-(-places // RESULTS) for places in size[1:])
    products = tiles * (1.15 * ELEMENTS * math.prod(whole) + TRANSFORM * sum(whole))
    products += channels * filters * (FILTER if channels * filters <= CACHED_FILTERS else FAR_FILTER)
    return products < 0.9 * 9 * images * math.prod(size) * channels * filters


def _numbers(part: Part, extents: Extents, bias_stride: int) -> WinogradNumbers:
    columns, filters, _ = part
    lanes, width = vector_lanes(ELEMENT), tile_sizes(ELEMENT).columns
    high, wide = (-(-places // RESULTS) for places in columns.out_size[1:])
    tiles = extents.images * high * wide
    blocks = -(-tiles // BLOCK_TILES)
    block_tiles = -(-tiles // blocks)
    room = (ROOM - 2 * lanes) // block_tiles
    pitch, block_channels = -(-extents.channels // lanes) * lanes, extents.channels
    if pitch > min(BLOCK, room - width):
        pitch = block_channels = min(64, (room - width) // lanes * lanes)
    block_filters = min(-(-extents.filters // width), (room - pitch) // width) * width
    while block_filters >= 2 * LEAST_FILTERS and blocks * -(-extents.filters // block_filters) < CHUNKS:
        block_filters = -(-block_filters // 2 // width) * width
    if blocks * -(-extents.filters // block_filters) < CHUNKS // 2:
        block_tiles = -(-tiles // (2 * blocks))
    before = min(0, 2 * columns.delta[2])  # of taps that count from the last one
    return WinogradNumbers(
        channels=extents.channels,
        filters=extents.filters,
        height=columns.size[1],
        width=columns.size[2],
        out_height=columns.out_size[1],
        out_width=columns.out_size[2],
        image_stride=columns.strides[0],
        channel_stride=columns.strides[1],
        row_stride=columns.strides[3],
        filter_stride=filters.row,
        filter_channel=filters.channel,
        bias_stride=bias_stride,
        top=columns.offset[1] + before,
        left=columns.offset[2] + before,
        tiles_high=high,
        tiles_wide=wide,
        tiles=tiles,
        block_tiles=block_tiles,
        block_channels=block_channels,
        channel_pitch=pitch,
        block_filters=block_filters,
        grain=max(1, GRAIN // (ELEMENTS * block_tiles * extents.channels * block_filters)),
    )


def _filter_elements(numbers: WinogradNumbers) -> int:
    """How far elements of transformed filters are apart: a vector more than all panels take."""
    width = tile_sizes(ELEMENT).columns
    return -(-numbers.filters // width) * width * numbers.channels + vector_lanes(ELEMENT)


Span = tuple[IrValue, IrValue]
"""The number of a first one, and how many there are."""


class Run(NamedTuple):
    """Tiles of one row of an image."""

    image: IrValue
    row: IrValue  # of the first result
    column: IrValue
    first: IrValue  # number of the first tile in its block
    tiles: IrValue


def winograd(*form: object) -> IrModule:
    """The kernel of a :class:`WinogradForm`."""
    return Writer(WinogradForm(*form)).module  # type: ignore[arg-type]


class Writer:
    """Writes the module of a kernel."""

    def __init__(self, form: WinogradForm) -> None:
        self.form = form
        self.module = IrModule()
        self.lanes, self.width = vector_lanes(ELEMENT), tile_sizes(ELEMENT).columns
        self.type = vector(ELEMENT, self.lanes)
        addresses = ["x", "w", *["bias"] * form.epilogue.bias, *form.epilogue.tensors, "out", "scratch"]
        self.slots = KernelSlots(addresses, (*WinogradNumbers._fields, *form.epilogue.numbers))
        transforming, repairing = self._filters(), self._repair()
        multiplying = self._tiles(repairing)
        with self.module.kernel("winograd") as code:
            read = self._reader(code)
            parts = _quotient_up(read("filters"), self.lanes) * _quotient_up(read("channels"), CHANNELS)
            code.parallel(transforming, code.parameters[0], parts, FILTER_GRAIN)
            blocks = _quotient_up(read("tiles"), read("block_tiles"))
            chunks = _quotient_up(read("filters"), read("block_filters"))
            code.parallel(multiplying, code.parameters[0], blocks * chunks, read("grain"))

    def _reader(self, code: Code) -> Callable[[str], IrValue]:
        """Reads slots by their names."""
        return functools.partial(self.slots.read, code)

    def _transformed_filters(self, code: Code) -> tuple[IrValue, IrValue]:
        """Their address, and how far their elements are apart."""
        read = self._reader(code)
        panels = _quotient_up(read("filters"), self.width) * self.width
        return read("scratch"), panels * read("channels") + self.lanes

    def _filters(self) -> Code:
        """The part that transforms filters: a vector of them, for some channels."""
        lanes, width = self.lanes, self.width
        with self.module.part("filters") as code:
            _, begin, end = code.parameters
            read = self._reader(code)
            steps = _quotient_up(read("channels"), CHANNELS)
            transformed, element_step = self._transformed_filters(code)
            with code.loop(begin, end) as number:
                first, c0 = number // steps * lanes, number % steps * CHANNELS
                rows = self._filter_rows(code, first)
                panel = code.at(
                    transformed, first // width * read("channels") * width + first % width, ELEMENT
                )
                with code.loop(c0, _smaller(code, read("channels"), c0 + CHANNELS)) as c:
                    taps: list[IrValue] = []
                    for k in range(0, 9, lanes):
                        mask = code.first_lanes(code.constant("i64", 9 - k), lanes) if k + lanes > 9 else None
                        place = c * read("filter_channel") + k
                        taps += transposed(code, [code.load(row, place, self.type, mask) for row in rows])
                    taps = taps[8::-1] if self.form.flipped else taps[:9]
                    grid = both_axes(code, transform_filter, [taps[row : row + 3] for row in (0, 3, 6)])
                    target = code.at(panel, c * width, ELEMENT)
                    for i, value in enumerate(value for row in grid for value in row):
                        code.store(value, target, element_step * i)
            return code

    def _filter_rows(self, code: Code, first: IrValue) -> list[IrValue]:
        """The addresses of a vector of filters; past the last one, of the last one."""
        read = self._reader(code)
        numbers = [_smaller(code, first + lane, read("filters") - 1) for lane in range(self.lanes)]
        return [code.at(read("w"), number * read("filter_stride"), ELEMENT) for number in numbers]

    def _tiles(self, repairing: Code) -> Code:
        """The part that computes blocks: some filters of some tiles."""
        with self.module.part("tiles") as code:
            _, begin, end = code.parameters
            read = self._reader(code)
            images = code.local(ELEMENT, ELEMENTS * ROOM)
            image_step = read("block_tiles") * read("channel_pitch") + self.lanes
            products = code.at(images, image_step * ELEMENTS, ELEMENT)
            product_step = read("block_tiles") * read("block_filters") + self.lanes
            chunks = _quotient_up(read("filters"), read("block_filters"))
            transformed, filter_step = self._transformed_filters(code)
            panel = read("channels") * self.width
            held = code.variable("i64", -1)  # the block whose images are there
            with code.loop(begin, end) as number:
                block, f0 = number // chunks, number % chunks * read("block_filters")
                t0 = block * read("block_tiles")
                count = _smaller(code, read("tiles") - t0, read("block_tiles"))
                filters = _smaller(code, read("filters") - f0, read("block_filters"))
                own = code.at(transformed, f0 * read("channels"), ELEMENT)
                with code.loop(0, read("channels"), read("block_channels")) as c0:
                    depth = _smaller(code, read("channels") - c0, read("block_channels"))
                    with code.if_(held.value.differs(block) | (depth < read("channels"))):
                        self._transform_images(code, images, image_step, (t0, count), (c0, depth))
                    held.value = block
                    mode = code.select(c0 > 0, code.constant("i64", ADD), 0)
                    rows = code.at(own, c0 * self.width, ELEMENT)
                    with code.loop(0, ELEMENTS) as i:
                        target = code.at(products, i * product_step, ELEMENT)
                        code.call(
                            linked(gemm_tiles, ELEMENT), "void",
                            code.at(images, i * image_step, ELEMENT), read("channel_pitch"),
                            code.constant("i64", 1), code.at(rows, i * filter_step, ELEMENT),
                            code.constant("i64", self.width), target, read("block_filters"), depth, filters,
                            mode, target, count, panel,
                        )  # fmt: skip
                self._write_results(code, repairing, products, product_step, (t0, count), (f0, filters))
            return code

    @contextmanager
    def _runs(self, code: Code, tiles: Span, most: int) -> Iterator[Run]:
        """Loops over tiles that lie side by side, `most` at a time."""
        read = self._reader(code)
        first, count = tiles
        end, wide = first + count, read("tiles_wide")
        with code.loop(first // wide, (end - 1) // wide + 1) as line:
            before = line * wide
            start = code.intrinsic("smax", first, before)
            stop = _smaller(code, end, before + wide)
            with code.loop(start, stop, most) as tile:
                run = _smaller(code, stop - tile, most)
                row, column = line % read("tiles_high") * RESULTS, (tile - before) * RESULTS
                yield Run(line // read("tiles_high"), row, column, tile - first, run)

    def _transform_images(
        self,
        code: Code,
        target: IrValue,
        step: IrValue,
        tiles: Span,
        channels: Span,
    ) -> None:
        lanes, type, read = self.lanes, self.type, self._reader(code)
        patch = code.local(ELEMENT, SIDE * COLUMNS * lanes)  # rows of columns of channels
        c0, depth = channels
        x = code.at(read("x"), c0 * read("channel_stride"), ELEMENT)
        with self._runs(code, tiles, TILES_READ) as (n, row, column, tile, run):
            top, left = row + read("top"), column + read("left")
            start = n * read("image_stride") + top * read("row_stride") + left
            with code.loop(0, depth, lanes) as c:
                source = code.at(x, start, ELEMENT)
                places = [
                    code.at(source, _smaller(code, c + lane, depth - 1) * read("channel_stride"), ELEMENT)
                    for lane in range(lanes)
                ]
                with code.loop(0, SIDE) as r:
                    limit = code.select(code.unsigned_less(top + r, read("height")), read("width"), 0)
                    for k in range(0, COLUMNS, lanes):
                        mask = self._inside(code, left + k, limit, lanes)
                        values = [code.load(p, r * read("row_stride") + k, type, mask) for p in places]
                        for i, value in enumerate(transposed(code, values)):
                            code.store(value, patch, (r * COLUMNS + (k + i)) * lanes)
                with code.loop(0, run) as j:
                    grid = [
                        [
                            code.load(patch, (j * RESULTS + (r * COLUMNS + k)) * lanes, type)
                            for k in range(SIDE)
                        ]
                        for r in range(SIDE)
                    ]
                    place = code.at(target, (tile + j) * read("channel_pitch") + c, ELEMENT)
                    rows = both_axes(code, transform_image, grid)
                    for i, value in enumerate(value for line in rows for value in line):
                        code.store(value, place, step * i)

    def _inside(self, code: Code, first: IrValue, limit: IrValue, lanes: int) -> IrValue:
        """The mask of lanes that lie from 0 to `limit`, counted from `first`."""
        start, end = (code.splat(code.convert(value, "i32"), lanes) for value in (first, limit))
        return code.unsigned_less(code.lane_numbers("i32", lanes) + start, end)

    def _write_results(
        self,
        code: Code,
        repairing: Code,
        products: IrValue,
        step: IrValue,
        tiles: Span,
        filters: Span,
    ) -> None:
        """Transform products back, and store them with what follows."""
        lanes, type, read = self.lanes, self.type, self._reader(code)
        by_place = code.local(ELEMENT, RESULTS * COLUMNS * lanes)
        by_filter = code.local(ELEMENT, lanes * RESULTS * COLUMNS)
        out = read("out")
        f0, count = filters
        with (
            self._runs(code, tiles, TILES_WRITTEN) as (n, row, column, tile, run),
            code.loop(0, count, lanes) as f,
        ):
            counted = code.first_lanes(count - f, lanes)
            with code.loop(0, run) as j:
                source = code.at(products, (tile + j) * read("block_filters") + f, ELEMENT)
                loaded = [code.load(source, step * i, type) for i in range(ELEMENTS)]
                grid = [loaded[first : first + SIDE] for first in range(0, ELEMENTS, SIDE)]
                sums = both_axes(code, transform_result, grid)
                place = code.at(by_place, j * RESULTS * lanes, ELEMENT)
                total = code.constant(type, 0.0)
                for high, wide in itertools.product(range(RESULTS), repeat=2):
                    code.store(sums[high][wide], place, (high * COLUMNS + wide) * lanes)
                    total = total + sums[high][wide]
                total = code.select(counted, total, 0.0)
                with code.if_(code.any_of((total - total).differs(0.0))):
                    left = column + j * RESULTS
                    code.run(repairing, code.parameters[0], place, n, row, left, f0 + f)
            with code.loop(0, RESULTS) as r:
                for k in range(0, COLUMNS, lanes):
                    values = [
                        code.load(by_place, (r * COLUMNS + (k + lane)) * lanes, type) for lane in range(lanes)
                    ]
                    for lane, value in enumerate(transposed(code, values)):
                        code.store(value, by_filter, r * COLUMNS + (lane * RESULTS * COLUMNS + k))
            left = _smaller(code, read("out_width") - column, run * RESULTS)
            last = _smaller(code, read("out_height") - row, RESULTS)
            with code.loop(0, _smaller(code, count - f, lanes)) as i:
                number = f0 + f + i
                line = (n * read("filters") + number) * read("out_height") + row
                target = code.at(out, line * read("out_width") + column, ELEMENT)
                finished = epilogue(code, self.slots, self.form.epilogue, ELEMENT, number, target, lanes)
                with code.loop(0, last) as r:
                    for k in range(0, COLUMNS, lanes):
                        mask = code.first_lanes(left - k, lanes)
                        value = code.load(by_filter, (i * RESULTS + r) * COLUMNS + k, type)
                        place = r * read("out_width") + k
                        code.store(finished(value, place, mask), target, place, mask)

    def _repair(self) -> Code:
        """The function that adds up the products of a tile, for a vector of filters.

        Its parameters are the slots, the target (rows of columns of filters), the image, the first result's
        row and column, and the first filter.
        """
        lanes, high = self.lanes, self.lanes // RESULTS  # rows of a tile in a vector
        with self.module.function("repair", "ptr", "ptr", *["i64"] * 4) as code:
            _, target, n, row, column, first = code.parameters
            read = self._reader(code)
            x = code.at(read("x"), n * read("image_stride"), ELEMENT)
            filters = self._filter_rows(code, first)
            with code.loop(0, RESULTS, high) as r0:
                sums = [code.variable(self.type, 0.0) for _ in range(lanes)]
                with code.loop(0, read("channels")) as c, code.loop(0, 3) as tap_y, code.loop(0, 3) as tap_x:
                    left = column + read("left") + tap_x
                    pieces = []
                    for r in range(high):
                        y = row + read("top") + r0 + r + tap_y
                        limit = code.select(code.unsigned_less(y, read("height")), read("width"), 0)
                        start = c * read("channel_stride") + y * read("row_stride") + left
                        mask = self._inside(code, left, limit, RESULTS)
                        pieces.append(code.load(x, start, vector(ELEMENT, RESULTS), mask))
                    while len(pieces) > 1:
                        together = range(2 * lanes // len(pieces))
                        pieces = [
                            code.shuffle(a, b, together)
                            for a, b in zip(pieces[::2], pieces[1::2], strict=True)
                        ]
                    tap = tap_y * 3 + tap_x
                    factor = c * read("filter_channel") + (8 - tap if self.form.flipped else tap)
                    for total, own in zip(sums, filters, strict=True):
                        weight = code.splat(code.load(own, factor, ELEMENT), lanes)
                        total.value = code.intrinsic("fmuladd", weight, pieces[0], total.value)
                for i, value in enumerate(transposed(code, [total.value for total in sums])):
                    code.store(value, target, ((r0 + i // RESULTS) * COLUMNS + i % RESULTS) * lanes)
            return code


def _smaller(code: Code, left: IrValue, right: IrValue | int) -> IrValue:
    return code.intrinsic("smin", left, code.as_value("i64", right))


def _quotient_up(count: IrValue, by: IrValue | int) -> IrValue:
    return (count + by - 1) // by
