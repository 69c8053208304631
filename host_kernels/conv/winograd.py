"""Winograd's convolution with 3x3 filters and stride 1, and gradients of the inputs of such convolutions.

The transforms (:mod:`winograd_transforms`) have channels or filters in the lanes of vectors. Threads take
blocks of tiles: the images of a block are transformed, the products of each of the 36 elements are summed
over channels, a product of matrices in a core's second cache, and transformed back. Filters that many blocks
meet are transformed before, into scratch memory; where there are few blocks, each transforms them for itself,
some channels of some filters at a time. A number that is not finite would spread over its tile; results of
such tiles are added up as a plain convolution does it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from dl4all.config import winograd_setting
from dl4all.host_kernels.conv.epilogue import Following, SumsEpilogue, epilogue, launch_with_epilogue
from dl4all.host_kernels.conv.parts import CHUNKS, GRAIN, LEAST_FILTERS, Extents, Part
from dl4all.host_kernels.conv.slots import KernelSlots
from dl4all.host_kernels.conv.winograd_functions import (
    TAPS,
    WinogradNumbers,
    filters_function,
    results_function,
)
from dl4all.host_kernels.conv.winograd_tiles import (
    COLUMNS,
    ELEMENT,
    Planes,
    Span,
    runs,
    transform_planes,
)
from dl4all.host_kernels.conv.winograd_transforms import ELEMENTS, RESULTS, SIDE
from dl4all.host_kernels.lib.counts import quotient_up, smaller
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.host_kernels.lib.library import shared
from dl4all.host_kernels.linalg.gemm import Rows, multiply
from dl4all.host_kernels.linalg.gemm_tiles import ADD, BLOCK, tile_sizes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.ops.core.tensor_base import Shape
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector

ROOM = 3072
"""Channels and filters of all tiles of a block; times 36 floats, that is most of half a megabyte."""
BLOCK_TILES = 16
"""Tiles of a block, at most, and half as many where there are few: rows of products, two tiles of registers
high."""
OWN_CHANNELS = 48
"""Channels of a block that transforms the filters of a panel itself: what these take has its room, too."""
CHANNELS, FILTER_GRAIN = 16, 8
"""Channels for which a vector of filters is transformed before, and how many of these a thread takes."""

TRANSFORM, OWN_FILTER, OWN_FLIPPED, FILTER, FAR_FILTER = 350, 220, 280, 600, 1500
"""Products of a convolution that take as long as the transforms of a tile's elements for a channel or a
filter; as those of a filter for a channel, by a block, the same where channels are far apart, as those of a
gradient are, before all blocks, and where all filters leave the caches."""
CACHED_FILTERS = 2**17


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
        and winograd_setting()
    )
    flipped = columns.delta[2] < 0
    if not taken or not is_faster(extents, columns.out_size, flipped):
        return None
    own, before = _filter_costs(extents, columns.out_size, flipped)
    kept = before <= own
    numbers = _numbers(parts[0], extents, operands[-1].strides[0], kept)
    return launch_with_epilogue(
        winograd,
        (flipped, kept),
        len(operands),
        numbers,
        out,
        following,
        bias=bias,
        scratch=ELEMENTS * _kept_elements(numbers) * SIZES[ELEMENT] if kept else 0,
        work=ELEMENTS * numbers.tiles * numbers.channels * numbers.filters // 8,
    )


def is_faster(extents: Extents, size: Shape, flipped: bool) -> bool:
    """Whether results of this size take less time than by sums: by counts of products that take as long."""
    lanes = vector_lanes(ELEMENT)
    images, _, filters, channels = extents
    whole = [-(-count // lanes) * lanes for count in (filters, channels)]
    tiles = _tiles(extents, size)
    products = tiles * (1.15 * ELEMENTS * math.prod(whole) + TRANSFORM * sum(whole))
    products += channels * filters * min(_filter_costs(extents, size, flipped))
    return products < 0.9 * TAPS * images * math.prod(size) * channels * filters


def _tiles(extents: Extents, size: Shape) -> int:
    return extents.images * math.prod(-(-places // RESULTS) for places in size[1:])


def _filter_costs(extents: Extents, size: Shape, flipped: bool) -> tuple[int, int]:
    """Products that take as long as the transforms of a filter: by each block, and before."""
    cached = extents.channels * extents.filters <= CACHED_FILTERS
    own = OWN_FLIPPED if flipped else OWN_FILTER
    return own * -(-_tiles(extents, size) // BLOCK_TILES), FILTER if cached else FAR_FILTER


def _numbers(part: Part, extents: Extents, bias_stride: int, kept: bool) -> WinogradNumbers:
    columns, filters, _ = part
    lanes, width = vector_lanes(ELEMENT), tile_sizes(ELEMENT).columns
    high, wide = (-(-places // RESULTS) for places in columns.out_size[1:])
    tiles = _tiles(extents, columns.out_size)
    blocks = -(-tiles // BLOCK_TILES)
    block_tiles = -(-tiles // blocks)
    room = (ROOM - 2 * lanes) // block_tiles
    pitch, block_channels = -(-extents.channels // lanes) * lanes, extents.channels
    if pitch > min(BLOCK, room - width):
        pitch = block_channels = min(64, (room - width) // lanes * lanes)
    block_filters = min(-(-extents.filters // width), (room - pitch) // width) * width
    while block_filters >= 2 * LEAST_FILTERS and blocks * -(-extents.filters // block_filters) < CHUNKS:
        block_filters = -(-block_filters // 2 // width) * width
    if not kept:
        block_channels, block_filters = min(extents.channels, OWN_CHANNELS), width
        pitch = -(-block_channels // lanes) * lanes
    elif blocks * -(-extents.filters // block_filters) < CHUNKS // 2:
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


def _kept_elements(numbers: WinogradNumbers) -> int:
    """The distance of elements of filters that are transformed before: a vector more than all panels take."""
    width = tile_sizes(ELEMENT).columns
    return -(-numbers.filters // width) * width * numbers.channels + vector_lanes(ELEMENT)


def winograd(flipped: bool, kept: bool, sums: SumsEpilogue) -> IrModule:
    """The kernel. Slots: images, filters, what the epilogue reads and writes, the result, scratch; numbers.

    Args:
        flipped: whether taps count from the last one.
        kept: whether filters are transformed before, into scratch memory.
        sums: what follows them.
    """
    module = IrModule()
    addresses = ["x", "w", *["bias"] * sums.bias, *sums.tensors, "out", *["scratch"] * kept]
    slots = KernelSlots(addresses, (*WinogradNumbers._fields, *sums.numbers))
    filters = _filters(module, slots, flipped) if kept else None
    blocks = _blocks(module, slots, flipped, kept, sums)
    with module.kernel("winograd") as code:
        read = functools.partial(slots.read, code)
        if filters is not None:
            vectors = quotient_up(read("filters"), vector_lanes(ELEMENT))
            count = vectors * quotient_up(read("channels"), CHANNELS)
            code.parallel(filters, code.parameters[0], count, FILTER_GRAIN)
        count = quotient_up(read("tiles"), read("block_tiles"))
        count = count * quotient_up(read("filters"), read("block_filters"))
        code.parallel(blocks, code.parameters[0], count, read("grain"))
    return module


class _Panels(NamedTuple):
    """Transformed filters."""

    address: IrValue
    step: IrValue  # distance of elements
    pitch: IrValue  # distance of panels


def _kept_filters(code: Code, slots: KernelSlots) -> _Panels:
    """All filters, transformed before."""
    read = functools.partial(slots.read, code)
    width = tile_sizes(ELEMENT).columns
    pitch = read("channels") * width
    panels = quotient_up(read("filters"), width)
    return _Panels(read("scratch"), panels * pitch + vector_lanes(ELEMENT), pitch)


def _filters(module: IrModule, slots: KernelSlots, flipped: bool) -> Code:
    """The part that transforms filters before: a vector of them, for some channels."""
    lanes, width = vector_lanes(ELEMENT), tile_sizes(ELEMENT).columns
    with module.part("filters") as code:
        _, begin, end = code.parameters
        read = functools.partial(slots.read, code)
        panels, steps = _kept_filters(code, slots), quotient_up(read("channels"), CHANNELS)
        with code.loop(begin, end) as number:
            first, c0 = number // steps * lanes, number % steps * CHANNELS
            target = code.at(panels.address, first // width * panels.pitch + first % width, ELEMENT)
            channels = smaller(code, read("channels") - c0, CHANNELS)
            target = code.at(target, c0 * width, ELEMENT)
            _transform_filters(code, slots, flipped, (first, c0), channels, target, panels.step)
        return code


def _transform_filters(
    code: Code,
    slots: KernelSlots,
    flipped: bool,
    first: tuple[IrValue, IrValue],
    channels: IrValue,
    target: IrValue,
    step: IrValue,
) -> None:
    """Transform a vector of filters for some channels."""
    read = functools.partial(slots.read, code)
    start = first[0] * read("filter_stride") + first[1] * read("filter_channel")
    count = read("filters") - first[0]
    function = shared(filters_function, flipped)
    w = code.at(read("w"), start, ELEMENT)
    function.run(code, _numbers_address(code, slots), w, count, channels, target, step)


def _blocks(module: IrModule, slots: KernelSlots, flipped: bool, kept: bool, sums: SumsEpilogue) -> Code:
    """The part that computes blocks: some filters of some tiles."""
    lanes, width = vector_lanes(ELEMENT), tile_sizes(ELEMENT).columns
    with module.part("blocks") as code:
        _, begin, end = code.parameters
        read = functools.partial(slots.read, code)
        pitch, block_filters = read("channel_pitch"), read("block_filters")
        images = code.local(ELEMENT, ELEMENTS * ROOM)
        image_step = read("block_tiles") * pitch + lanes
        products = code.at(images, image_step * ELEMENTS, ELEMENT)
        product_step = read("block_tiles") * block_filters + lanes
        if kept:
            panels = _kept_filters(code, slots)
        else:
            place = code.at(products, product_step * ELEMENTS, ELEMENT)
            panels = _Panels(place, pitch * width + lanes, pitch * width)
        chunks = quotient_up(read("filters"), block_filters)
        grid = read("tiles_high"), read("tiles_wide")
        held = code.variable("i64", -1)  # the block whose images are there
        with code.loop(begin, end) as number:
            block, f0 = number // chunks, number % chunks * block_filters
            t0 = block * read("block_tiles")
            tiles = t0, smaller(code, read("tiles") - t0, read("block_tiles"))
            filters = f0, smaller(code, read("filters") - f0, block_filters)
            with code.loop(0, read("channels"), read("block_channels")) as c0:
                depth = smaller(code, read("channels") - c0, read("block_channels"))
                planes = Planes(
                    code.at(read("x"), c0 * read("channel_stride"), ELEMENT), depth, read("image_stride"),
                    read("channel_stride"), read("row_stride"), read("height"), read("width"), read("top"),
                    read("left"),
                )  # fmt: skip
                with code.if_(held.value.differs(block) | (depth < read("channels"))):
                    transform_planes(code, SIDE, planes, grid, tiles, images, image_step, pitch)
                held.value = block
                rows = panels.address
                if kept:
                    rows = code.at(rows, f0 * read("channels") + c0 * width, ELEMENT)
                else:
                    with code.loop(0, filters[1], lanes) as f:
                        target = code.at(rows, f, ELEMENT)
                        _transform_filters(code, slots, flipped, (f0 + f, c0), depth, target, panels.step)
                mode = code.select(c0 > 0, code.constant("i64", ADD), 0)
                with code.loop(0, ELEMENTS) as i, code.loop(0, filters[1], width) as f:
                    a = code.at(images, i * image_step, ELEMENT)
                    panel = code.at(rows, i * panels.step + f // width * panels.pitch, ELEMENT)
                    b = Rows(panel, code.constant("i64", width))
                    c = code.at(products, i * product_step + f, ELEMENT)
                    sizes = tiles[1], smaller(code, filters[1] - f, width), depth
                    multiply(code, a, (pitch, 1), b, c, block_filters, sizes, mode=mode)
            _store_results(code, slots, flipped, sums, products, product_step, tiles, filters)
        return code


def _store_results(
    code: Code,
    slots: KernelSlots,
    flipped: bool,
    sums: SumsEpilogue,
    products: IrValue,
    step: IrValue,
    tiles: Span,
    filters: Span,
) -> None:
    """Transform the products of a block back, and store them with what follows."""
    lanes = vector_lanes(ELEMENT)
    read = functools.partial(slots.read, code)
    function = shared(results_function, flipped)
    pitch, wide, grid = read("block_filters"), read("out_width"), (read("tiles_high"), read("tiles_wide"))
    first, count = filters
    results = code.local(ELEMENT, lanes * RESULTS * COLUMNS)
    with runs(code, grid, tiles, COLUMNS // RESULTS) as run, code.loop(0, count, lanes) as f:
        function.run(
            code, _numbers_address(code, slots), read("x"),
            code.at(read("w"), (first + f) * read("filter_stride"), ELEMENT),
            code.at(products, run.first * pitch + f, ELEMENT), step, pitch, run.image, run.row, run.column,
            run.tiles, count - f, results,
        )  # fmt: skip
        left = smaller(code, wide - run.column, run.tiles * RESULTS)
        rows = smaller(code, read("out_height") - run.row, RESULTS)
        with code.loop(0, smaller(code, count - f, lanes)) as i:
            number = first + f + i
            line = (run.image * read("filters") + number) * read("out_height") + run.row
            target = code.at(read("out"), line * wide + run.column, ELEMENT)
            finished = epilogue(code, slots, sums, ELEMENT, number, target, lanes)
            with code.loop(0, rows) as r:
                for k in range(0, COLUMNS, lanes):
                    mask, place = code.first_lanes(left - k, lanes), r * wide + k
                    value = code.load(results, (i * RESULTS + r) * COLUMNS + k, vector(ELEMENT, lanes))
                    code.store(finished(value, place, mask), target, place, mask)


def _numbers_address(code: Code, slots: KernelSlots) -> IrValue:
    return code.at(code.parameters[0], slots.numbers[WinogradNumbers._fields[0]], "i64")
