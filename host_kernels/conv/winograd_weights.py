"""Gradients of 3x3 filters by Winograd's algorithm.

Tiles of images and of gradients of results are transformed as those of convolutions are (:mod:`winograd`),
and multiplied element by element: for each of the 36 elements, the sum over tiles is a product of matrices.
A thread takes some channels and some filters, whose sums stay in a core's second cache, and some tiles. In
the end the sums of all tiles are added up and transformed back. Numbers that are not finite would spread
over all taps; such filters' gradients are added up as a plain convolution does it.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

from dl4all.config import winograd_setting
from dl4all.host_kernels.conv.parts import CHUNKS, GRAIN
from dl4all.host_kernels.conv.slots import KernelSlots
from dl4all.host_kernels.conv.winograd_functions import TAPS
from dl4all.host_kernels.conv.winograd_tiles import (
    ELEMENT,
    Planes,
    inside,
    square,
    transform_planes,
)
from dl4all.host_kernels.conv.winograd_transforms import (
    ELEMENTS,
    RESULTS,
    SIDE,
    both_axes,
    transform_back,
)
from dl4all.host_kernels.lib.counts import quotient_up, smaller
from dl4all.host_kernels.lib.dot_tiles import vector_lanes
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.host_kernels.linalg.gemm import Rows, multiply
from dl4all.host_kernels.linalg.gemm_tiles import ADD
from dl4all.ops.conv.window import Window
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector

ROOM = 2048
"""Channels and filters of the tiles that are transformed at a time; times 36 floats, some 300 KB."""
BLOCK = 64
"""Channels, and filters, whose sums a thread adds up."""
LEAST_TILES = 32
"""Of a thread: the sums of all threads are added up in the end."""
TRANSFORM, SUM, FAR_SUM = 350, 600, 1500
"""Products of a plain gradient that take as long as the transform of a tile for a channel or a filter, as
zeros, sums and transform of a filter for a channel, and as those where all sums leave the caches."""
CACHED_SUMS = 2**15
RESULT_GRAIN = 64
"""Vectors of filters that a thread transforms back at a time, for a channel each."""


class WeightNumbers(NamedTuple):
    """The numbers that slots of a kernel hold, in this order."""

    channels: int
    filters: int
    images: int
    height: int  # of an image
    width: int
    out_height: int
    out_width: int
    image_stride: int
    channel_stride: int
    row_stride: int
    grad_image: int
    grad_filter: int
    top: int  # place of the first tap for the first result
    left: int
    tiles_high: int
    tiles_wide: int
    tiles: int
    tiles_together: int
    parts: int
    part_tiles: int
    block_channels: int
    block_filters: int
    grain: int


def winograd_weight_gradient(
    out: ArrayLayout, grad: ArrayLayout, input: ArrayLayout, window: Window, groups: int
) -> HostLaunch | None:
    """The launch of a gradient with contiguous places; None where plain sums of products are faster."""
    if (
        groups > 1
        or out.dtype.name != "float32"
        or len(out.shape) != 4
        or window.kernel != (1, 3, 3)
        or {*window.stride, *window.dilation} != {1}
        or input.strides[3] != 1
        or not winograd_setting()
    ):
        return None
    filters, channels = out.shape[:2]
    lanes = vector_lanes(ELEMENT)
    high, wide = (-(-size // RESULTS) for size in grad.shape[2:])
    tiles = grad.shape[0] * high * wide
    block_channels, block_filters = (min(BLOCK, -(-n // lanes) * lanes) for n in (channels, filters))
    channel_blocks, filter_blocks = -(-channels // block_channels), -(-filters // block_filters)
    blocks = channel_blocks * filter_blocks
    parts = max(1, min(CHUNKS // blocks, tiles // LEAST_TILES))
    products = tiles * blocks * block_channels * block_filters * ELEMENTS * 1.3
    products += tiles * TRANSFORM * blocks * (block_channels + block_filters)
    products += channels * filters * parts * (SUM if parts * channels * filters <= CACHED_SUMS else FAR_SUM)
    if products > 0.9 * TAPS * math.prod(grad.shape) * channels:
        return None
    part_tiles = -(-tiles // parts)
    parts = -(-tiles // part_tiles)  # each has some
    most = ROOM // (block_channels + block_filters)
    numbers = WeightNumbers(
        channels=channels,
        filters=filters,
        images=grad.shape[0],
        height=input.shape[2],
        width=input.shape[3],
        out_height=grad.shape[2],
        out_width=grad.shape[3],
        image_stride=input.strides[0],
        channel_stride=input.strides[1],
        row_stride=input.strides[2],
        grad_image=grad.strides[0],
        grad_filter=grad.strides[1],
        top=-window.before[1],
        left=-window.before[2],
        tiles_high=high,
        tiles_wide=wide,
        tiles=tiles,
        tiles_together=-(-part_tiles // -(-part_tiles // most)),
        parts=parts,
        part_tiles=part_tiles,
        block_channels=block_channels,
        block_filters=block_filters,
        grain=max(1, GRAIN // (ELEMENTS * part_tiles * block_channels * block_filters)),
    )
    sums = ELEMENTS * parts * blocks * (block_channels * block_filters + lanes)
    work = ELEMENTS * tiles * channels * filters // 8
    return HostLaunch(winograd_weights, (), 3, numbers, scratch=sums * SIZES[ELEMENT], work=work)


SLOTS = KernelSlots(("grad", "x", "out", "scratch"), WeightNumbers._fields)


def winograd_weights() -> IrModule:
    """The kernel. Slots: gradients, images, result, scratch, :class:`WeightNumbers`.

    Sums in scratch memory are by parts of the tiles, blocks of channels and of filters, elements, channels
    and filters.
    """
    module = IrModule()
    sums, results = _sums(module), _results(module, _repair(module))
    with module.kernel("winograd_weights") as code:
        read = functools.partial(SLOTS.read, code)
        blocks = quotient_up(read("channels"), read("block_channels"))
        blocks = blocks * quotient_up(read("filters"), read("block_filters"))
        code.parallel(sums, code.parameters[0], read("parts") * blocks, read("grain"))
        vectors = quotient_up(read("filters"), vector_lanes(ELEMENT))
        code.parallel(results, code.parameters[0], read("channels") * vectors, RESULT_GRAIN)
    return module


def _element_step(code: Code) -> IrValue:
    """From sums of a block's element to those of the next one."""
    pitches = SLOTS.read(code, "block_channels"), SLOTS.read(code, "block_filters")
    return pitches[0] * pitches[1] + vector_lanes(ELEMENT)


def _sums(module: IrModule) -> Code:
    """The part that adds up blocks: some channels and filters, over some tiles."""
    lanes = vector_lanes(ELEMENT)
    with module.part("sums") as code:
        _, begin, end = code.parameters
        read = functools.partial(SLOTS.read, code)
        pitch_x, pitch_g = read("block_channels"), read("block_filters")
        images = code.local(ELEMENT, ELEMENTS * (ROOM + 2 * lanes))
        image_step = read("tiles_together") * pitch_x + lanes
        gradients = code.at(images, image_step * ELEMENTS, ELEMENT)
        gradient_step = read("tiles_together") * pitch_g + lanes
        sum_step = _element_step(code)
        filter_blocks = quotient_up(read("filters"), pitch_g)
        blocks = quotient_up(read("channels"), pitch_x) * filter_blocks
        grid = read("tiles_high"), read("tiles_wide")
        zero = code.constant("i64", 0)
        with code.loop(begin, end) as number:
            part, block = number // blocks, number % blocks
            c0, f0 = block // filter_blocks * pitch_x, block % filter_blocks * pitch_g
            channels = smaller(code, read("channels") - c0, pitch_x)
            filters = smaller(code, read("filters") - f0, pitch_g)
            x = Planes(
                code.at(read("x"), c0 * read("channel_stride"), ELEMENT), channels,
                read("image_stride"), read("channel_stride"), read("row_stride"),
                read("height"), read("width"), read("top"), read("left"),
            )  # fmt: skip
            g = Planes(
                code.at(read("grad"), f0 * read("grad_filter"), ELEMENT), filters,
                read("grad_image"), read("grad_filter"), read("out_width"),
                read("out_height"), read("out_width"), zero, zero,
            )  # fmt: skip
            sums = code.at(read("scratch"), number * ELEMENTS * sum_step, ELEMENT)
            first = part * read("part_tiles")
            last = smaller(code, read("tiles"), first + read("part_tiles"))
            with code.loop(first, last, read("tiles_together")) as tile:
                tiles = tile, smaller(code, last - tile, read("tiles_together"))
                transform_planes(code, SIDE, x, grid, tiles, images, image_step, pitch_x)
                transform_planes(code, RESULTS, g, grid, tiles, gradients, gradient_step, pitch_g)
                mode = code.select(tile > first, code.constant("i64", ADD), 0)
                with code.loop(0, ELEMENTS) as i:
                    a = code.at(images, i * image_step, ELEMENT)
                    b = Rows(code.at(gradients, i * gradient_step, ELEMENT), pitch_g)
                    c = code.at(sums, i * sum_step, ELEMENT)
                    multiply(code, a, (1, pitch_x), b, c, pitch_g, (channels, filters, tiles[1]), mode=mode)
        return code


def _results(module: IrModule, repairing: Code) -> Code:
    """The part that adds up the sums of all tiles and transforms them: a channel for some filters."""
    lanes = vector_lanes(ELEMENT)
    type = vector(ELEMENT, lanes)
    with module.part("results") as code:
        _, begin, end = code.parameters
        read = functools.partial(SLOTS.read, code)
        step, pitch = _element_step(code), read("block_filters")
        filter_blocks = quotient_up(read("filters"), pitch)
        blocks = quotient_up(read("channels"), read("block_channels")) * filter_blocks
        vectors = quotient_up(read("filters"), lanes)
        with code.loop(begin, end) as number:
            c, f = number // vectors, number % vectors * lanes
            block = c // read("block_channels") * filter_blocks + f // pitch
            place = c % read("block_channels") * pitch + f % pitch
            totals = [code.variable(type, 0.0) for _ in range(ELEMENTS)]
            with code.loop(0, read("parts")) as part:
                start = (part * blocks + block) * ELEMENTS * step + place
                source = code.at(read("scratch"), start, ELEMENT)
                for i, total in enumerate(totals):
                    total.value = total.value + code.load(source, step * i, type)
            grid = square([total.value for total in totals])
            taps = list(itertools.chain(*both_axes(code, transform_back, grid)))
            counted = code.first_lanes(read("filters") - f, lanes)
            sum_of_taps = functools.reduce(lambda a, b: a + b, taps)
            sum_of_taps = code.select(counted, sum_of_taps, 0.0)
            taps += [taps[0]] * (-TAPS % lanes)
            columns = [transposed(code, taps[k : k + lanes]) for k in range(0, TAPS, lanes)]
            for lane in range(lanes):
                target = code.at(read("out"), ((f + lane) * read("channels") + c) * TAPS, ELEMENT)
                with code.if_(f + lane < read("filters")):
                    for k, column in zip(range(0, TAPS, lanes), columns, strict=True):
                        mask = code.first_lanes(code.constant("i64", TAPS - k), lanes)
                        code.store(column[lane], target, k, mask)
            with code.if_(code.any_of((sum_of_taps - sum_of_taps).differs(0.0))):
                code.run(repairing, code.parameters[0], c, f)
        return code


def _repair(module: IrModule) -> Code:
    """The function that adds up the products of some filters for a channel.

    Its parameters are the slots, the channel, and the first filter.
    """
    lanes = vector_lanes(ELEMENT)
    type = vector(ELEMENT, lanes)
    with module.function("repair", "ptr", "i64", "i64") as code:
        _, c, first = code.parameters
        read = functools.partial(SLOTS.read, code)
        total = code.variable(type, 0.0)
        x = code.at(read("x"), c * read("channel_stride"), ELEMENT)
        with (
            code.loop(first, smaller(code, read("filters"), first + lanes)) as f,
            code.loop(0, 3) as tap_y,
            code.loop(0, 3) as tap_x,
        ):
            total.value = 0.0
            g = code.at(read("grad"), f * read("grad_filter"), ELEMENT)
            with (
                code.loop(0, read("images")) as n,
                code.loop(0, read("out_height")) as row,
                code.loop(0, read("out_width"), lanes) as column,
            ):
                y, left = row + read("top") + tap_y, column + read("left") + tap_x
                limit = code.select(code.unsigned_less(y, read("height")), read("width"), 0)
                place = n * read("image_stride") + y * read("row_stride") + left
                value = code.load(x, place, type, inside(code, left, limit, lanes))
                counted = code.first_lanes(read("out_width") - column, lanes)
                place = n * read("grad_image") + row * read("out_width") + column
                factor = code.load(g, place, type, counted)
                value = code.select(counted, value, 0.0)
                total.value = code.intrinsic("fmuladd", factor, value, total.value)
            place = (f * read("channels") + c) * TAPS + tap_y * 3 + tap_x
            code.store(code.sum_of(total.value), read("out"), place)
        return code
