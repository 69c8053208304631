"""Convolutions: columns of a few places of the images at a time, multiplied with the filters.

Columns (:mod:`columns`) of as many rows as fit into a core's first cache are written, then all filters of a
chunk are multiplied with them (:mod:`dot_tiles`), which read filters as they lie in memory. Sums over more
rows are added up in the result. Where images are small, tiles have places of several images, and results go
to scratch memory first, from where they are copied.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dl4all.ops.conv.convolution import ConvArgs
from dl4all.ops.conv.window import three_axes
from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.host_kernels import columns
from dl4all.ops.host_kernels.columns import Columns, columns_function
from dl4all.ops.host_kernels.dot_tiles import Axis, Sums, Tile, TileCode, tile_for
from dl4all.ops.host_kernels.rows import CHUNK, row_passes
from dl4all.runtime.cpu.llvm.ir import LLVM_TYPES, SIZES, Code, Module, Value, vector

MOST_ROWS = 192
"""Rows of columns at a time: with a tile's columns, most of a core's first cache."""
MOST_TAPS = 256
MOST_TILES = 8
"""Tiles of columns in a chunk: the filters are read from the second cache for each."""
LEAST_FILTERS = 64
"""Of a chunk, if there are that many."""
GRAIN = 400_000
"""Products of a chunk, at least: some microseconds."""
CHUNKS = 16
"""Into how many chunks large work is to be cut."""
MOST_WASTE = 1.04
"""Lanes computed for each result, from which tiles get places of several images."""
MOST_SIZE = 2**30


class Epilogue(NamedTuple):
    """What is done with sums in the end: a bias for each filter, another tensor and ReLU, in this order."""

    bias: bool = False
    added: bool = False
    relu: bool = False


class Filters(NamedTuple):
    """How filters lie in memory: strides."""

    group: int
    filter: int
    channel: int
    taps: tuple[int, int, int]


class Shapes(NamedTuple):
    """Extents of a convolution."""

    images: int
    groups: int
    filters: int  # of a group
    channels: int  # of a group


class Plan(NamedTuple):
    """How a convolution is cut. Slots of a kernel hold these numbers, after those of the columns."""

    group_stride: int  # of images
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
    run_images: int
    chunk_places: int
    filters: int
    chunk_filters: int
    channels: int
    block_channels: int
    groups: int
    out_run: int  # strides of the results
    out_row: int


@host_kernel("conv1d", "conv2d", "conv3d")
def prepare_convolution(
    out: Layout,
    input: Layout,
    weight: Layout,
    bias: Layout | None,
    stride: object,
    padding: object,
    dilation: object,
    groups: int,
) -> HostLaunch:
    """
    Raises:
        NoKernel: the NumPy body computes such convolutions, or does it faster.
    """
    args = ConvArgs(stride, padding, dilation, groups)  # type: ignore[arg-type]
    return convolution_launch(out, input, weight, bias, args)


def convolution_launch(
    out: Layout,
    input: Layout,
    weight: Layout,
    bias: Layout | None,
    args: ConvArgs,
    *,
    added: bool = False,
    relu: bool = False,
) -> HostLaunch:
    """The launch of a convolution and of what follows it.

    Its slots are the addresses of image, filters, bias if there is one, the tensor that is added if there is
    one, of the result's shape and contiguous, and of the result.

    Args:
        out: layout of the result, contiguous.
        input: of the images (N, C, ...).
        weight: of the filters (F, C / groups, ...).
        bias: of a number for each filter, if there is one.
        args: stride, padding, dilation, groups.
        added: whether another tensor is added to the result.
        relu: whether ReLU is taken of that.

    Raises:
        NoKernel: there is none for these.
    """
    win = args.window(weight.shape[2:]).three_axes
    n_stride, c_stride, *x_strides = input.strides
    f_stride, wc_stride, *w_strides = weight.strides
    groups = args.groups
    filters, channels = weight.shape[0] // groups, weight.shape[1]
    found = Columns(
        (n_stride, c_stride, *three(x_strides, input.shape[2:])),  # type: ignore[arg-type]
        three_axes(input.shape[2:]),
        three_axes(out.shape[2:]),
        win.kernel,
        win.stride,
        tuple(-before for before in win.before),
        win.dilation,
    )
    shapes = Shapes(input.shape[0], groups, filters, channels)
    lies = Filters(f_stride * filters, f_stride, wc_stride, three(w_strides, weight.shape[2:]))
    operands = (input, weight) if bias is None else (input, weight, bias)
    return launch_of(out, operands, shapes, found, lies, Epilogue(bias is not None, added, relu))


def three(strides: list[int], sizes: Shape) -> tuple[int, int, int]:
    """Strides of three axes, of which the first may be missing."""
    missing = 3 - len(strides)
    first, second, third = (0,) * missing + tuple(strides)
    return first, second, third


def launch_of(
    out: Layout,
    operands: tuple[Layout, ...],
    shapes: Shapes,
    found: Columns,
    lies: Filters,
    epilogue: Epilogue,
) -> HostLaunch:
    """
    Raises:
        NoKernel
    """
    dtype = out.dtype
    if dtype not in (np.float32, np.float64) or any(operand.dtype != dtype for operand in operands):
        raise NoKernel("other than floats of 32 or 64 bits")
    if 0 in (*shapes, *found.taps, *found.size) or found.rows > MOST_TAPS or max(found.size) > MOST_SIZE:
        raise NoKernel("nothing to add up, or too many taps")
    if shapes.channels == 1 and shapes.filters < 4 and shapes.groups > 1:
        raise NoKernel("depthwise")
    element = LLVM_TYPES[dtype.name]
    tile = tile_for(shapes.filters, element)
    vectors = -(-found.places // tile.lanes)
    gathered = shapes.images > 1 and vectors * tile.lanes > MOST_WASTE * found.places
    plan = planned(shapes, found, lies, tile, gathered=gathered)
    key = (tile, shapes.filters % tile.rows, found.neighbours, epilogue, gathered)
    rows = shapes.groups * shapes.filters
    scratch = rows * plan.out_row * SIZES[element] if gathered else 0
    products = math.prod(shapes) * found.rows * found.places
    per_chunk = plan.chunk_places * plan.chunk_filters * plan.channels * found.rows
    grain = max(1, GRAIN // per_chunk)
    pass_grain = max(1, CHUNK // found.places)
    constants = (
        *found.numbers,
        *plan,
        grain,
        found.places,
        shapes.images,
        pass_grain,
        operands[-1].strides[0],
    )
    addresses = 3 + epilogue.bias + epilogue.added
    return HostLaunch(convolution, key, addresses, constants, scratch=scratch, work=products // 8)


def planned(shapes: Shapes, found: Columns, lies: Filters, tile: Tile, *, gathered: bool) -> Plan:
    """How to cut a convolution."""
    depth, height, width = found.taps
    d, h, w = lies.taps
    taps = found.rows
    if depth == 1 or d == height * h:
        outer, inner, outer_stride, inner_stride = (
            depth * height,
            width,
            h if height > 1 or depth == 1 else d,
            w,
        )
    elif height == 1 or h == width * w:
        outer, inner, outer_stride, inner_stride = depth, height * width, d, w if width > 1 else h
    else:
        raise NoKernel("filters with gaps")
    if outer == 1 or outer_stride == inner * inner_stride:
        outer, inner, outer_stride, inner_stride = 1, taps, 0, inner_stride if inner > 1 else outer_stride
    merged = outer == 1 and (inner == 1 or lies.channel == taps * inner_stride)
    if inner == 1:
        inner_stride = lies.channel
    run_images = shapes.images if gathered else 1
    runs = shapes.images // run_images
    places = found.places * run_images
    chunk_places, chunk_filters = cut(places, shapes.filters, runs * shapes.groups, tile)
    blocks = -(-shapes.channels * taps // MOST_ROWS)
    block_channels = -(-shapes.channels // blocks)
    pitch = -(-places // tile.lanes) * tile.lanes if gathered else places
    return Plan(
        shapes.channels * found.strides[1], lies.group, lies.filter, lies.channel, outer_stride, inner_stride,
        outer, inner, merged, runs, places, run_images, chunk_places, shapes.filters, chunk_filters,
        shapes.channels, block_channels, shapes.groups, shapes.groups * shapes.filters * pitch, pitch,
    )  # fmt: skip


def cut(places: int, filters: int, times: int, tile: Tile) -> tuple[int, int]:
    """Places and filters of a chunk, where all of them are needed so many times."""
    vectors = -(-places // tile.lanes)
    tiles = -(-vectors // tile.vectors)
    chunk_tiles = min(tiles, MOST_TILES)
    while chunk_tiles > 2 and times * -(-tiles // chunk_tiles) < CHUNKS:
        chunk_tiles = -(-chunk_tiles // 2)
    parts = times * -(-tiles // chunk_tiles)
    chunk_filters = filters
    while chunk_filters >= 2 * LEAST_FILTERS and parts * -(-filters // chunk_filters) < CHUNKS:
        chunk_filters = -(-chunk_filters // 2)
    chunk_filters = min(filters, -(-chunk_filters // tile.rows) * tile.rows)
    return min(chunk_tiles * tile.columns, places), chunk_filters


class Slots:
    """The slots of a kernel by name."""

    def __init__(self, epilogue: Epilogue, scratch: bool) -> None:
        addresses = [
            "x",
            "w",
            *(["bias"] if epilogue.bias else []),
            *(["added"] if epilogue.added else []),
            "out",
        ]
        if scratch:
            addresses.append("scratch")
        self._addresses = set(addresses)
        self.columns = len(addresses)
        names = [*addresses, *(f"columns{i}" for i in range(columns.NUMBERS)), *Plan._fields]
        names += ["grain", "image_places", "images", "pass_grain", "bias_stride"]
        self._numbers = {name: number for number, name in enumerate(names)}

    def read(self, code: Code, name: str) -> Value:
        return code.slot(self._numbers[name], "ptr" if name in self._addresses else "i64")


def convolution(tile: Tile, rest: int, neighbours: int, epilogue: Epilogue, gathered: bool) -> Module:
    """The kernel: see :class:`Slots`."""
    module = Module()
    slots = Slots(epilogue, gathered)
    element = tile.element

    def finish(code: Code, value: Value, row: Value, place: Value, mask: Value | None) -> Value:
        """The sums with bias, addend and ReLU; `place` is where in the result they go."""
        lanes = tile.lanes
        if epilogue.bias:
            value = value + code.splat(
                code.load(slots.read(code, "bias"), row * slots.read(code, "bias_stride"), element), lanes
            )
        if epilogue.added:
            start, here = (
                code.emit("i64", f"ptrtoint {p!r} to i64") for p in (slots.read(code, "out"), place)
            )
            value = value + code.load(
                code.at(slots.read(code, "added"), here - start, "i8"), 0, value.type, mask
            )
        if epilogue.relu:
            value = code.select(value < 0.0, 0.0, value)
        return value

    pitch = tile.columns + tile.lanes
    unroll = columns_function(module, slots.columns, neighbours, element, pitch)
    tiles = TileCode(module, tile, rest, None if gathered or not any(epilogue) else finish)
    with module.part("chunks") as code:
        _, begin, end = code.parameters
        at = {name: slots.read(code, name) for name in Plan._fields}
        x, w, out = (slots.read(code, name) for name in ("x", "w", "scratch" if gathered else "out"))
        taps = at["outer"] * at["inner"]
        memory = code.local(element, max(MOST_ROWS, MOST_TAPS) * pitch)
        with code.loop(begin, end) as chunk:
            filter_chunks = (at["filters"] + at["chunk_filters"] - 1) // at["chunk_filters"]
            place_chunks = (at["places"] + at["chunk_places"] - 1) // at["chunk_places"]
            f0 = chunk % filter_chunks * at["chunk_filters"]
            rest_ = chunk // filter_chunks
            p0 = rest_ % place_chunks * at["chunk_places"]
            rest_ = rest_ // place_chunks
            run, group = rest_ % at["runs"], rest_ // at["runs"]
            f_count = smaller(code, at["filters"] - f0, at["chunk_filters"])
            p_end = smaller(code, at["places"], p0 + at["chunk_places"])
            image = slots.read(code, "columns0")
            channel = slots.read(code, "columns1")
            source = code.at(x, run * at["run_images"] * image + group * at["group_stride"], element)
            row0 = group * at["filters"] + f0
            filters = code.at(w, group * at["filter_group"] + f0 * at["filter_row"], element)
            sums = code.at(out, run * at["out_run"] + row0 * at["out_row"], element)
            with code.loop(0, at["channels"], at["block_channels"]) as c0:
                c_count = smaller(code, at["channels"] - c0, at["block_channels"])
                adds = code.convert(c0 > 0, "i64")
                ends = code.convert((c0 + c_count).equals(at["channels"]), "i64")
                merged = at["merged"].differs(0)
                axes = (
                    Axis(code.select(merged, 1, c_count), at["filter_channel"], taps * pitch),
                    Axis(at["outer"], at["filter_outer"], at["inner"] * pitch),
                    Axis(code.select(merged, c_count * taps, at["inner"]), at["filter_inner"], pitch),
                )
                block = code.at(source, c0 * channel, element)
                a = code.at(filters, c0 * at["filter_channel"], element)
                with code.loop(p0, p_end, tile.columns) as place:
                    count = smaller(code, p_end - place, tile.columns)
                    code.run(unroll, code.parameters[0], block, memory, place, count, c_count)
                    target = Sums(code.at(sums, place, element), at["out_row"], adds, ends, row0)
                    tiles.run(code, a, at["filter_row"], memory, axes, f_count, count, target)
        part = code
    collect = collecting_part(module, slots, tile, epilogue, finish) if gathered else None
    with module.kernel("convolution") as code:
        at = {name: slots.read(code, name) for name in Plan._fields}
        filter_chunks = (at["filters"] + at["chunk_filters"] - 1) // at["chunk_filters"]
        place_chunks = (at["places"] + at["chunk_places"] - 1) // at["chunk_places"]
        chunks = filter_chunks * place_chunks * at["runs"] * at["groups"]
        code.parallel(part, code.parameters[0], chunks, slots.read(code, "grain"))
        if collect is not None:
            lines = at["groups"] * at["filters"] * slots.read(code, "images")
            code.parallel(collect, code.parameters[0], lines, slots.read(code, "pass_grain"))
    return module


def collecting_part(module: Module, slots: Slots, tile: Tile, epilogue: Epilogue, finish: object) -> Code:
    """Copies results of all images of a filter to each image's."""
    type = vector(tile.element, tile.lanes)
    with module.part("collect") as code:
        _, begin, end = code.parameters
        places, out_row = slots.read(code, "image_places"), slots.read(code, "out_row")
        rows = slots.read(code, "groups") * slots.read(code, "filters")
        with code.loop(begin, end) as line:
            image, row = line // rows, line % rows
            source = code.at(slots.read(code, "scratch"), row * out_row + image * places, tile.element)
            target = code.at(slots.read(code, "out"), line * places, tile.element)

            def step(i: Value, mask: Value | None) -> None:
                value = code.load(source, i, type, mask)
                if any(epilogue):
                    value = finish(code, value, row, code.at(target, i, tile.element), mask)  # type: ignore[operator]
                code.store(value, target, i, mask)

            row_passes(code, places, tile.lanes, step)
        return code


def smaller(code: Code, left: Value, right: Value | int) -> Value:
    return code.select(left < right, left, right)
