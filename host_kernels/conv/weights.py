"""Gradients of convolutions' filters: images multiplied with the gradients of results, channel by channel.

A chunk has some filters and some channels of a group, and some images. It takes the gradients of results at a
block of places, transposed so that a vector has those of several filters, and multiplies them with what each
element of the filters meets there (:mod:`dot_tiles`): rows of sums are channels, read from the images as they
lie in memory. Places whose element lies outside of the image are left out. In the end the sums of all images
are added up and transposed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dl4all.host_kernels.conv.parts import CHUNKS, GRAIN, three
from dl4all.host_kernels.conv.weights_direct import direct_weight_gradient
from dl4all.host_kernels.conv.winograd_weights import winograd_weight_gradient
from dl4all.host_kernels.lib.counts import larger, quotient_up, smaller
from dl4all.host_kernels.lib.dot_tiles import Axis, DotTile, Sums, Tiles, tile_for, vector_lanes
from dl4all.host_kernels.lib.library import NAME, shared
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.ops.conv.convolution import ConvArgs
from dl4all.ops.conv.window import three_axes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import LLVM_TYPES, SIZES, vector

PLACES = 192
"""Of a block: the gradients of a tile's filters there fill most of a core's first cache."""
LEAST_ROWS = 288
"""Channels of a chunk times taps, if there are that many: transposing gradients costs little beside them."""
MOST_ROWS = 2048
"""The same at most: their sums stay in the second cache."""
MOST_SIZE = 2**30
ADDRESSES = 4
RESULT_BLOCKS = 64
"""Blocks of results that are stored at a time."""


class Numbers(NamedTuple):
    """Slots of a kernel, after the addresses."""

    image: int  # strides of the images
    channel: int
    depth: int
    row: int
    column: int
    grad_image: int  # strides of the gradients
    grad_filter: int
    size0: int
    size1: int
    size2: int
    out0: int
    out1: int
    out2: int
    taps0: int
    taps1: int
    taps2: int
    step0: int
    step1: int
    step2: int
    before0: int
    before1: int
    before2: int
    dilation0: int
    dilation1: int
    dilation2: int
    images: int
    split_images: int
    splits: int
    groups: int
    filters: int  # of a group
    tile_columns: int  # filters of a tile
    channels: int  # of a group
    chunk_channels: int
    block_images: int
    block_rows: int
    block_columns: int
    grain: int


@host_kernel("conv_weight")
def prepare_weight_gradient(
    out: ArrayLayout,
    grad: ArrayLayout,
    input: ArrayLayout,
    kernel_size: object,
    stride: object,
    padding: object,
    dilation: object,
    groups: int,
) -> HostLaunch:
    """
    Raises:
        NoKernel: the NumPy body computes such gradients, or does it faster.
    """
    del kernel_size  # the result's
    dtype = out.dtype
    if dtype not in (np.float32, np.float64) or grad.dtype != dtype or input.dtype != dtype:
        raise NoKernel("other than floats of 32 or 64 bits")
    if 0 in grad.shape or 0 in input.shape or max(input.shape) > MOST_SIZE:
        raise NoKernel("nothing to add up, or too large")
    window = ConvArgs(stride, padding, dilation, groups).window(out.shape[2:]).three_axes  # type: ignore[arg-type]
    filters, channels = out.shape[0] // groups, out.shape[1]
    places = math.prod(grad.shape[2:])
    if not ArrayLayout(grad.shape[2:], dtype, grad.strides[2:]).is_contiguous():
        raise NoKernel("gradients with gaps")
    if groups > 1 and 1 in (filters, channels):
        return direct_weight_gradient(out, grad, input, window, groups)
    launch = winograd_weight_gradient(out, grad, input, window, groups)
    if launch:
        return launch
    size, out_size = three_axes(input.shape[2:]), three_axes(grad.shape[2:])
    strides = three(input.strides[2:])
    if window.is_pointwise and ArrayLayout(size, dtype, strides).is_contiguous():
        size = out_size = (1, 1, places)
        strides = (0, 0, 1)
    element = LLVM_TYPES[dtype.name]
    tile = tile_for(channels, element)
    vectors = -(-filters // tile.lanes)
    tile_vectors = -(-vectors // -(-vectors // tile.vectors))
    tile = tile._replace(vectors=tile_vectors)
    taps = math.prod(window.kernel)
    filter_tiles = -(-filters // tile.columns)
    images = grad.shape[0]
    chunk_channels = min(channels, max(1, MOST_ROWS // taps))
    while (
        chunk_channels > 1
        and groups * filter_tiles * -(-channels // chunk_channels) < CHUNKS
        and chunk_channels * taps >= 2 * LEAST_ROWS
    ):
        chunk_channels = -(-chunk_channels // 2)
    chunk_channels = min(channels, -(-chunk_channels // tile.rows) * tile.rows)
    chunks = groups * filter_tiles * -(-channels // chunk_channels)
    split_images = max(1, images // max(1, CHUNKS // chunks))
    products = images * math.prod(out_size) * out.numel()
    if products < 8 * GRAIN:
        split_images = images
    splits = -(-images // split_images)
    block_columns = min(out_size[2], PLACES)
    block_rows = min(out_size[1], max(1, PLACES // block_columns))
    whole = out_size[0] == 1 and block_rows == out_size[1] and block_columns == out_size[2]
    block_images = min(split_images, max(1, PLACES // (block_rows * block_columns))) if whole else 1
    geometry = (
        *input.strides[:2],
        *strides,
        *grad.strides[:2],
        *size,
        *out_size,
        *window.kernel,
        *window.stride,
    )
    parts = (*window.before, *window.dilation, images, split_images, splits, groups, filters, tile.columns)
    blocks = (channels, chunk_channels, block_images, block_rows, block_columns)
    grain = max(1, GRAIN * chunks * splits // products)
    numbers = Numbers._make((*geometry, *parts, *blocks, grain))
    rows = splits * groups * filter_tiles * channels * taps
    return HostLaunch(
        weight_gradient,
        (tile, channels % tile.rows),
        3,
        numbers,
        scratch=rows * tile.columns * SIZES[element],
        work=products // 8,
    )


def weight_gradient(tile: DotTile, rest: int) -> IrModule:
    """Slots: gradients, images, result, scratch, :class:`Numbers`.

    Sums in scratch memory are by images, groups, tiles of filters, channels, taps and filters.
    """
    module = IrModule()
    chunks = _chunks(module, Tiles(tile, rest))
    results = _results(module, tile)
    with module.kernel("weight_gradient") as code:
        at = Names(code)
        filter_tiles = quotient_up(at["filters"], at["tile_columns"])
        channel_parts = quotient_up(at["channels"], at["chunk_channels"])
        count = at["splits"] * at["groups"] * filter_tiles * channel_parts
        code.parallel(chunks, code.parameters[0], count, at["grain"])
        blocks = at["groups"] * filter_tiles * quotient_up(at["channels"] * _taps(at), tile.lanes)
        code.parallel(results, code.parameters[0], blocks, RESULT_BLOCKS)
    return module


class Names:
    """The numbers in slots by name."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def __getitem__(self, name: str) -> IrValue:
        return self._code.slot(ADDRESSES + Numbers._fields.index(name))


def _taps(at: Names) -> IrValue:
    return at["taps0"] * at["taps1"] * at["taps2"]


def transposing_function(module: IrModule, element: str) -> Code:
    """Writes a function that writes gradients by places.

    Its parameters are the address of the first filter's gradients, the distance of filters, the address to
    write to, the distance of places there, how many places follow each other, filters, and the address of a
    number that 0 times each gradient is added to. Up to a vector of places more is written.
    """
    lanes = vector_lanes(element)
    type = vector(element, lanes)
    with module.function(NAME, "ptr", "i64", "ptr", "i64", "i64", "i64", "ptr", exported=True) as code:
        source, stride, out, pitch, places, filters, zero = code.parameters
        zeros = code.variable(type, 0.0)
        with code.loop(0, filters, lanes) as f, code.loop(0, places, lanes) as place:
            mask = code.first_lanes(places - place, lanes)
            rows = [
                code.load(source, smaller(code, f + i, filters - 1) * stride + place, type, mask)
                for i in range(lanes)
            ]
            for i, value in enumerate(transposed(code, rows)):
                zeros.value = code.intrinsic("fmuladd", value, code.constant(type, 0.0), zeros.value)
                code.store(value, out, (place + i) * pitch + f)
        code.store(code.load(zero, 0, element) + code.sum_of(zeros.value), zero, 0)
        return code


def _chunks(module: IrModule, tiles: Tiles) -> Code:
    """The part that adds up the sums of chunks: some images, filters and channels of a group."""
    tile = tiles.tile
    element, lanes = tile.element, tile.lanes
    transpose = shared(transposing_function, element)
    with module.part("chunks") as code:
        _, begin, end = code.parameters
        at = Names(code)
        grad, input, scratch = code.slot(0, "ptr"), code.slot(1, "ptr"), code.slot(3, "ptr")
        memory = code.local(element, (PLACES + lanes) * tile.columns)
        zero, zeros = code.local(element), code.local(element)
        code.store(code.constant(element, 0.0), zero, 0)
        filter_tiles = quotient_up(at["filters"], at["tile_columns"])
        channel_parts = quotient_up(at["channels"], at["chunk_channels"])
        taps = _taps(at)
        with code.loop(begin, end) as chunk:
            c0 = chunk % channel_parts * at["chunk_channels"]
            tile_number = chunk // channel_parts  # over images, groups and tiles of filters
            f0 = tile_number % filter_tiles * tile.columns
            group = tile_number // filter_tiles % at["groups"]
            n0 = tile_number // filter_tiles // at["groups"] * at["split_images"]
            n_end = smaller(code, at["images"], n0 + at["split_images"])
            channels = smaller(code, at["channels"] - c0, at["chunk_channels"])
            filters = smaller(code, at["filters"] - f0, tile.columns)
            sums = code.at(scratch, (tile_number * at["channels"] + c0) * taps * tile.columns, element)
            image = code.at(input, (group * at["channels"] + c0) * at["channel"], element)
            gradients = code.at(grad, (group * at["filters"] + f0) * at["grad_filter"], element)
            with (
                code.loop(n0, n_end, at["block_images"]) as n,
                code.loop(0, at["out0"]) as z,
                code.loop(0, at["out1"], at["block_rows"]) as y0,
                code.loop(0, at["out2"], at["block_columns"]) as x0,
            ):
                images = smaller(code, n_end - n, at["block_images"])
                rows = smaller(code, at["out1"] - y0, at["block_rows"])
                columns = smaller(code, at["out2"] - x0, at["block_columns"])
                places = rows * columns  # they follow each other: a block has whole rows, or one
                first = (z * at["out1"] + y0) * at["out2"] + x0
                code.store(code.constant(element, 0.0), zeros, 0)
                with code.loop(0, images) as i:
                    source = code.at(gradients, (n + i) * at["grad_image"] + first, element)
                    target = code.at(memory, i * places * tile.columns, element)
                    transpose.run(
                        code, source, at["grad_filter"], target, tile.columns, places, filters, zeros
                    )
                spoils = code.load(zeros, 0, element).differs(0.0)
                is_first = n.equals(n0) & z.equals(0) & y0.equals(0) & x0.equals(0)
                adds = code.convert(~is_first, "i64")
                with (
                    code.loop(0, at["taps0"]) as kd,
                    code.loop(0, at["taps1"]) as kh,
                    code.loop(0, at["taps2"]) as kw,
                ):
                    tap = (kd * at["taps1"] + kh) * at["taps2"] + kw
                    depth = z * at["step0"] + kd * at["dilation0"] - at["before0"]
                    inside = code.unsigned_less(depth, at["size0"])
                    y, x = _met(code, at, 1, kh, y0, rows), _met(code, at, 2, kw, x0, columns)
                    place = depth * at["depth"] + y.place * at["row"] + x.place * at["column"]
                    axes = (
                        Axis(code.select(inside, images, 0), at["image"], places * tile.columns),
                        Axis(y.extent, at["step1"] * at["row"], columns * tile.columns),
                        Axis(x.extent, at["step2"] * at["column"], tile.columns),
                    )
                    target = code.at(sums, tap * tile.columns, element)
                    tiles.run(
                        code, code.at(image, n * at["image"] + place, element), at["channel"],
                        code.at(memory, (y.first * columns + x.first) * tile.columns, element),
                        axes, channels, filters, Sums(target, taps * tile.columns, adds),
                    )  # fmt: skip
                    with code.if_(spoils), code.loop(0, 4) as side:  # 0 times inf or nan is nan
                        top, bottom, left, right = _outside(code, side, inside, y, x, rows, columns)
                        axes = (
                            Axis(images, 0, places * tile.columns),
                            Axis(bottom - top, 0, columns * tile.columns),
                            Axis(right - left, 0, tile.columns),
                        )
                        b = code.at(memory, (top * columns + left) * tile.columns, element)
                        more = Sums(target, taps * tile.columns, 1)
                        tiles.run(code, zero, 0, b, axes, channels, filters, more)
        return code


class TapSpan(NamedTuple):
    """The range along an axis of a block where a tap meets the image: places of both."""

    first: IrValue
    extent: IrValue
    place: IrValue


def _met(code: Code, at: Names, axis: int, tap: IrValue, start: IrValue, count: IrValue) -> TapSpan:
    """The range of an axis where a tap meets the image, in a block from `start` on with `count` places."""
    step, size = at[f"step{axis}"], at[f"size{axis}"]
    shift = tap * at[f"dilation{axis}"] - at[f"before{axis}"]
    low = smaller(code, larger(code, (step - 1 - shift) // step - start, 0), count)
    high = larger(code, smaller(code, (size - shift + step - 1) // step - start, count), low)
    return TapSpan(low, high - low, (start + low) * step + shift)


def _outside(
    code: Code, side: IrValue, inside: IrValue, y: TapSpan, x: TapSpan, rows: IrValue, columns: IrValue
) -> tuple[IrValue, IrValue, IrValue, IrValue]:
    """The places that a tap misses: rows and columns above (0), below, left or right."""
    low = code.select(inside, y.first, rows)
    high = code.select(inside, y.first + y.extent, rows)
    top = code.select(side.equals(0), 0, code.select(side.equals(1), high, low))
    bottom = code.select(side.equals(0), low, code.select(side.equals(1), rows, high))
    left = code.select(side.equals(3), x.first + x.extent, 0)
    right = code.select(side.equals(2), x.first, columns)
    return top, bottom, left, right


def _results(module: IrModule, tile: DotTile) -> Code:
    """The part that adds up the sums of all images, and stores them filter by filter."""
    element, lanes = tile.element, tile.lanes
    type = vector(element, lanes)
    with module.part("results") as code:
        _, begin, end = code.parameters
        at = Names(code)
        out, scratch = code.slot(2, "ptr"), code.slot(3, "ptr")
        rows = at["channels"] * _taps(at)
        row_blocks = quotient_up(rows, lanes)
        filter_tiles = quotient_up(at["filters"], at["tile_columns"])
        with code.loop(begin, end) as block:
            row = block % row_blocks * lanes
            tile_number = block // row_blocks  # over groups and tiles of filters
            f0 = tile_number % filter_tiles * tile.columns
            filters = smaller(code, at["filters"] - f0, tile.columns)
            mask = code.first_lanes(rows - row, lanes)
            target = code.at(out, (tile_number // filter_tiles * at["filters"] + f0) * rows + row, element)
            with code.loop(0, filters, lanes) as f:
                sums = [code.variable(type, 0.0) for _ in range(lanes)]
                with code.loop(0, at["splits"]) as split:
                    tiles = (split * at["groups"] * filter_tiles + tile_number) * rows
                    for i, total in enumerate(sums):
                        number = tiles + smaller(code, row + i, rows - 1)
                        total.value = total.value + code.load(scratch, number * tile.columns + f, type)
                for i, value in enumerate(transposed(code, [total.value for total in sums])):
                    with code.if_(f + i < filters):
                        code.store(value, target, (f + i) * rows, mask)
        return code
