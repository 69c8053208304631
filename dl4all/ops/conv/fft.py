"""Convolution with large filters on devices, by Fourier transforms (Mathieu, Henaff and LeCun, 2014).

Images are cut into tiles that overlap by the extent of a filter (overlap-save), padded to powers of two and
transformed, rows first; so are filters and gradients. Their product, element by element and transformed back,
is the convolution, the gradient of its input or the gradient of its filters: the three differ in which of the
transforms are conjugated and along which axis the products are summed up. Images are real, so half of each
transform is enough.

The maps of an image are the transforms of its channels, tile by tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from dl4all.ops.conv.costs import COST_PER_LAUNCH
from dl4all.ops.conv.fft_plan import MAX_LENGTH, FftPlan, Pair, best_plan, filter_extent, plan_cost
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels.launch import (
    MAX_GRID_SIZE,
    MAX_LOOP_ROUNDS,
    STRIDED_GRID_CAP,
    ceil_div,
    check_rounds,
    run,
    shader,
)
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader

Ints: TypeAlias = tuple[int, ...]
Codes: TypeAlias = Mapping[tuple[bool, bool], Shader]

MAPS = (
    "uint channels, height, width, shift_h, shift_w, low_h, low_w, high_h, high_w, advance_h, advance_w, "
    "tiles_per_row, tiles, offset, image_step, count, pairs, first_pair, first;"
)
FFT_ROWS_PUSH = PushBlock("conv/fft_rows.comp", MAPS, INVERSE=0)
INVERSE_ROWS_PUSH = PushBlock(
    "conv/fft_rows.comp", f"{MAPS} float scale; uint has_bias, bias_offset;", INVERSE=1
)
FFT_COLUMNS_PUSH = PushBlock("conv/fft_columns.comp", "uint count, pairs;")
FFT_MULTIPLY_PUSH = PushBlock(
    "conv/fft_multiply.comp",
    "uint size, rows, columns, inner, a_row, a_inner, a_group, b_column, b_inner, b_group, y_row, y_column, "
    "y_group, accumulate; float sign;",
)
FFT_REPAIR_PUSH = PushBlock(
    "conv/fft_repair.comp",
    "uint kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, height, "
    "width, out_height, out_width, groups, channels, filters, count, x_offset, w_offset, has_bias, "
    "bias_offset;",
)
FFT_WEIGHT_REPAIR_PUSH = PushBlock(
    "conv/fft_weight_repair.comp",
    "uint kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, height, "
    "width, out_height, out_width, groups, channels, filters, start, count, size, first, pixels, g_offset, "
    "x_offset;",
)
ROWS, COLUMNS = (
    {
        (inverse, subgroups): shader(f"conv/fft_{axis}.comp", INVERSE=int(inverse), SUBGROUPS=int(subgroups))
        for inverse in (False, True)
        for subgroups in (False, True)
    }
    for axis in ("rows", "columns")
)
MULTIPLY = shader("conv/fft_multiply.comp")
REPAIR = {gradient: shader("conv/fft_repair.comp", PASS=int(gradient)) for gradient in (False, True)}
WEIGHT_REPAIR = shader("conv/fft_weight_repair.comp")
TRANSFORM_SHADERS = (*ROWS.values(), *COLUMNS.values(), MULTIPLY)

MAP_BYTES = 2**25  # Transforms of images, of filters or of products at a time.
MIN_KERNEL_ELEMENTS = 36  # Smaller filters leave too little to save.
WORKGROUP = 64  # invocations that multiply
MAX_PRODUCT_TILE = 4  # An invocation multiplies as many maps of images with as many maps of filters.
ROUNDS_PER_LAUNCH = 2**15  # Output pixels that a repairing kernel sums up; llvmpipe stops after 65535.

MIN_SPEEDUP = 1.5  # Transforms lose more digits of small results beside large ones, so they must clearly win.


class Maps(NamedTuple):
    """Channels of images, with the parameters by which shaders/conv/fft_rows.comp finds a tile's elements."""

    channels: int
    size: Pair  # of an image
    shift: Pair  # of the first tile, before the image
    low: Pair  # the first element of a tile that is read or written
    high: Pair  # the end of these elements
    advance: Pair  # from tile to tile
    grid: Pair  # tiles
    offset: int
    image_step: int
    step: Pair  # the distance of an image's elements in a tile

    @property
    def rows(self) -> Pair:
        """The first of the pairs of rows of a tile that have any element, and how many there are."""
        first = self.low[0] // 2
        return first, ceil_div(self.high[0], 2) - first

    def part(self, first: int, count: int) -> Maps:
        """`count` channels from `first` on."""
        return self._replace(channels=count, offset=self.offset + first * math.prod(self.size))

    def after(self, images: int) -> Maps:
        """The images that follow `images` others."""
        return self._replace(offset=self.offset + images * self.image_step)

    def push(self, count: int, first_tile: int) -> bytes:
        tiles_per_row = self.grid[1]
        first, pairs = self.rows
        return FFT_ROWS_PUSH.pack(
            self.channels, *self.size, *self.shift, *self.low, *self.high, *self.advance,
            tiles_per_row, self.grid[0] * tiles_per_row, self.offset, self.image_step,
            count * self.channels * pairs, pairs, first, first_tile,
        )  # fmt: skip


def supports(info: DeviceInfo, problem: Problem, direction: Direction) -> bool:
    """Whether transforms can compute a problem."""
    win = problem.win
    flat = (
        win.kernel[0] == win.stride[0] == problem.size[0] == problem.out_size[0] == 1 and win.before[0] == 0
    )
    if not flat or problem.kernel_elements < MIN_KERNEL_ELEMENTS:
        return False
    if min(problem.images, problem.channels, problem.filters) < 1 or max(filter_extent(problem)) > MAX_LENGTH:
        return False
    summed = problem.filters if direction == "input_gradient" else problem.channels
    inner = summed // problem.groups  # maps that must be in memory at once
    _, height, width = win.kernel
    repair_rounds = inner * (height * (ceil_div(width, 4) + 1) + 1)
    if (
        direction != "weight_gradient"
        and repair_rounds > MAX_LOOP_ROUNDS
        and info.driver_id == "mesa_llvmpipe"
    ):
        return False
    return inner * best_plan(problem, direction).nbytes <= 2 * MAP_BYTES


def _cost(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    cost = plan_cost(problem, direction, best_plan(problem, direction))
    return MIN_SPEEDUP * cost + 8 * COST_PER_LAUNCH


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem) -> None:
    plan = best_plan(problem, "forward")
    inner, outer = problem.channels // problem.groups, problem.filters // problem.groups
    source = _input_maps(problem, plan, x.offset, _pair(problem.win.before[1:]), (0, 0), plan.size)
    target = _output_maps(problem, plan, 0, (0, 0), plan.span)
    _convolve(out, x, w, bias, problem, plan, source, target, inner, outer, gradient=False)
    _repair(out, x, w, bias, problem, gradient=False)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    plan = best_plan(problem, "input_gradient")
    inner, outer = problem.filters // problem.groups, problem.channels // problem.groups
    reach = _pair(extent - 1 for extent in filter_extent(problem))
    shift = _pair(r - before for r, before in zip(reach, problem.win.before[1:], strict=True))
    high = _pair(map(sum, zip(reach, plan.span, strict=True)))
    source = _output_maps(problem, plan, g.offset, shift, plan.size)
    target = _input_maps(problem, plan, 0, reach, reach, high)
    _convolve(out, g, w, None, problem, plan, source, target, inner, outer, gradient=True)
    _repair(out, g, w, None, problem, gradient=True)


def _convolve(
    out: TensorBase,
    x: TensorBase,
    w: TensorBase,
    bias: TensorBase | None,
    problem: Problem,
    plan: FftPlan,
    source: Maps,
    target: Maps,
    inner: int,
    outer: int,
    *,
    gradient: bool,
) -> None:
    """Sum up `inner` maps of `x` times filters for each of the `outer` maps of `out`, in each group.

    Args:
        gradient: `x` is the gradient of the results, and `out` the gradient of the input.
    """
    max_groups, max_columns, max_tiles = _portions(problem, plan, inner, outer)
    images, weights, products = (
        _empty_maps(out, plan, count)
        for count in (
            max_tiles * max_groups * inner,
            max_groups * inner * max_columns,
            max_tiles * max_groups * max_columns,
        )
    )
    for group, groups in _pieces(problem.groups, max_groups):
        group_source = source.part(group * inner, groups * inner)
        transformed_column = -1  # the first of the filters that `weights` holds
        for first_tile, tiles in _pieces(problem.images * math.prod(plan.grid), max_tiles):
            _transform(images, x, plan, group_source, tiles, first_tile)
            for column, columns in _pieces(outer, max_columns):
                if transformed_column != column:
                    filters = _filter_maps(problem, w.offset)
                    if gradient:
                        filters = filters.after(group * inner).part(column, columns)
                        count = groups * inner
                    else:
                        filters = filters.after(group * outer + column)
                        count = groups * columns
                    _transform(weights, w, plan, filters, count, 0)
                    transformed_column = column
                _multiply(
                    products, images, weights, plan, (tiles, columns, inner, groups),
                    (inner * groups, 1, inner),
                    (1, columns, inner * columns) if gradient else (inner, 1, inner * columns),
                    (columns * groups, 1, columns),
                    conjugate=not gradient,
                )  # fmt: skip
                row = group * outer + column
                part = target.part(row, groups * columns)
                _transform_back(out, products, plan, part, tiles, first_tile, bias, row)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem) -> None:
    plan = best_plan(problem, "weight_gradient")
    channels, filters = problem.channels // problem.groups, problem.filters // problem.groups
    max_groups, max_columns, max_tiles = _portions(problem, plan, channels, filters)
    images, gradients, products = (
        _empty_maps(out, plan, count)
        for count in (
            max_tiles * max_groups * channels,
            max_tiles * max_groups * max_columns,
            max_groups * channels * max_columns,
        )
    )
    inputs = _input_maps(problem, plan, x.offset, _pair(problem.win.before[1:]), (0, 0), plan.size)
    outputs = _output_maps(problem, plan, g.offset, (0, 0), plan.span)
    for group, groups in _pieces(problem.groups, max_groups):
        group_inputs = inputs.part(group * channels, groups * channels)
        for column, columns in _pieces(filters, max_columns):
            row, rows = group * filters + column, groups * columns
            for first_tile, tiles in _pieces(problem.images * math.prod(plan.grid), max_tiles):
                _transform(images, x, plan, group_inputs, tiles, first_tile)
                _transform(gradients, g, plan, outputs.part(row, rows), tiles, first_tile)
                _multiply(
                    products, images, gradients, plan, (channels, columns, tiles, groups),
                    (1, channels * groups, channels),
                    (1, rows, columns),
                    (1, channels, channels * columns),
                    conjugate=True, accumulate=first_tile > 0,
                )  # fmt: skip
            _transform_back(out, products, plan, _filter_maps(problem, 0).after(row), rows, 0, None, 0)
            _repair_weight(out, products, plan, g, x, problem, row * channels, rows * channels)


def _portions(problem: Problem, plan: FftPlan, inner: int, outer: int) -> tuple[int, int, int]:
    """The numbers of groups, columns of products in a group, and tiles with maps in memory at a time."""
    max_maps = min(MAP_BYTES // plan.nbytes, MAX_GRID_SIZE)
    groups = max(1, min(problem.groups, max_maps // (inner * outer)))
    columns = max(1, min(outer, max_maps // inner))
    tiles = problem.images * math.prod(plan.grid)
    return groups, columns, max(1, min(tiles, max_maps // (groups * max(inner, columns))))


def _pieces(count: int, max_size: int) -> Iterator[tuple[int, int]]:
    """The start and the size of each piece of at most `max_size`."""
    for first in range(0, count, max_size):
        yield first, min(max_size, count - first)


def _empty_maps(like: TensorBase, plan: FftPlan, count: int) -> TensorBase:
    maps: TensorBase = empty(type(like), (count, plan.pairs, 4), FLOAT32, like.device)
    return maps


def _pair(numbers: Iterable[int]) -> Pair:
    first, second = numbers
    return first, second


def _input_maps(problem: Problem, plan: FftPlan, offset: int, shift: Pair, low: Pair, high: Pair) -> Maps:
    return Maps(
        problem.channels, _pair(problem.size[1:]), shift, low, high, plan.span, plan.grid, offset,
        problem.channels * problem.in_pixels, (1, 1),
    )  # fmt: skip


def _output_maps(problem: Problem, plan: FftPlan, offset: int, shift: Pair, high: Pair) -> Maps:
    return Maps(
        problem.filters, _pair(problem.out_size[1:]), shift, (0, 0), high, plan.span, plan.grid, offset,
        problem.filters * problem.out_pixels, _pair(problem.win.stride[1:]),
    )  # fmt: skip


def _filter_maps(problem: Problem, offset: int) -> Maps:
    """The maps of filters: each filter is an image of one tile."""
    return Maps(
        problem.channels // problem.groups, _pair(problem.win.kernel[1:]),
        (0, 0), (0, 0), filter_extent(problem), (0, 0), (1, 1), offset,
        problem.reduction_size, _pair(problem.win.dilation[1:]),
    )  # fmt: skip


# Launches


def _transform(
    out: TensorBase, x: TensorBase, plan: FftPlan, source: Maps, count: int, first_tile: int
) -> None:
    """Fill `out` with the transforms of `count` tiles from `first_tile` on."""
    _launch_rows(False, plan, source, count, source.push(count, first_tile), x, out)
    _launch_columns(False, plan, count * source.channels, source.rows[1], out)


def _transform_back(
    out: TensorBase,
    products: TensorBase,
    plan: FftPlan,
    target: Maps,
    count: int,
    first_tile: int,
    bias: TensorBase | None,
    row: int,
) -> None:
    """Fill `count` tiles of `out` from `first_tile` on; `row` is the first of the biases."""
    _launch_columns(True, plan, count * target.channels, plan.size[0] // 2, products)
    bias_push = (0, 0) if bias is None else (1, bias.offset + row)
    push = INVERSE_ROWS_PUSH.after(target.push(count, first_tile), 1 / math.prod(plan.size), *bias_push)
    _launch_rows(True, plan, target, count, push, products, products if bias is None else bias, out)


def _launch_rows(
    inverse: bool, plan: FftPlan, maps: Maps, count: int, push: bytes, *tensors: TensorBase
) -> None:
    height, width = plan.size
    rows = count * maps.channels * maps.rows[1]
    _launch_transforms(ROWS, inverse, width, rows, push, (height, *maps.step), *tensors)


def _launch_columns(inverse: bool, plan: FftPlan, maps: int, pairs: int, out: TensorBase) -> None:
    height, width = plan.size
    columns = maps * (width // 2 + 1)
    _launch_transforms(COLUMNS, inverse, height, columns, FFT_COLUMNS_PUSH.pack(columns, pairs), (), out)


def _launch_transforms(
    codes: Codes, inverse: bool, length: int, count: int, push: bytes, constants: Ints, *tensors: TensorBase
) -> None:
    """Launch a kernel of `count` transforms."""
    subgroups = tensors[0].device.info.short_subgroups
    size, widest = (16, 8) if subgroups else (128, 128)  # SIZE and WIDEST in fft.glsl
    groups = ceil_div(count, size // max(1, min(length // 8, widest)))
    steps = length.bit_length() - 1
    code, flops = codes[inverse, subgroups], 5 * count * length * steps
    run(code, _grid(groups), push, *tensors, constants=(steps, *constants), flops=flops)


def _multiply(
    out: TensorBase,
    a: TensorBase,
    b: TensorBase,
    plan: FftPlan,
    sizes: tuple[int, int, int, int],
    a_steps: Ints,
    b_steps: Ints,
    out_steps: Ints,
    *,
    conjugate: bool,
    accumulate: bool = False,
) -> None:
    """Sum up products of maps.

    Args:
        sizes: rows, columns, terms of a sum, and groups.
        a_steps, b_steps: from one row or column to the next, from one term, and from one group.
        out_steps: from one row, from one column, and from one group.
        accumulate: add to the content of `out`.
    """
    rows, columns, inner, groups = sizes
    tile = min(rows, MAX_PRODUCT_TILE), min(columns, MAX_PRODUCT_TILE)
    push = FFT_MULTIPLY_PUSH.pack(
        plan.pairs, rows, columns, inner, *a_steps, *b_steps, *out_steps,
        accumulate, 1.0 if conjugate else -1.0,
    )  # fmt: skip
    grid = (
        ceil_div(plan.pairs, WORKGROUP),
        ceil_div(rows, tile[0]),
        ceil_div(columns, tile[1]) * groups,
    )
    check_rounds(out.device, inner)
    flops = 16 * rows * columns * inner * groups * plan.pairs
    run(MULTIPLY, grid, push, a, b, out, constants=tile, flops=flops)


def _repair(
    out: TensorBase,
    x: TensorBase,
    w: TensorBase,
    bias: TensorBase | None,
    problem: Problem,
    *,
    gradient: bool,
) -> None:
    """Compute the results again that are not finite."""
    operands = (x, w) if gradient else (x, w, x if bias is None else bias)
    push = FFT_REPAIR_PUSH.pack(*_sizes(problem), out.numel(), x.offset, w.offset, *bias_constants(bias))
    run(REPAIR[gradient], _grid(ceil_div(out.numel(), WORKGROUP)), push, *operands, out)


def _repair_weight(
    out: TensorBase,
    products: TensorBase,
    plan: FftPlan,
    g: TensorBase,
    x: TensorBase,
    problem: Problem,
    first_map: int,
    count: int,
) -> None:
    """Compute the gradients again that are not finite.

    Args:
        first_map, count: channels of filters; `products` begins with their transforms.
    """
    elements, pixels = count * problem.kernel_elements, problem.images * problem.out_pixels
    for first_pixel, pixel_count in _pieces(pixels, ROUNDS_PER_LAUNCH):
        push = FFT_WEIGHT_REPAIR_PUSH.pack(
            *_sizes(problem), first_map * problem.kernel_elements, elements, plan.pairs * 4,
            first_pixel, pixel_count, g.offset, x.offset,
        )  # fmt: skip
        run(WEIGHT_REPAIR, _grid(ceil_div(elements, WORKGROUP)), push, products, g, x, out)


def _grid(groups: int) -> Grid:
    return min(groups, STRIDED_GRID_CAP), ceil_div(groups, STRIDED_GRID_CAP), 1


def _sizes(problem: Problem) -> Ints:
    """The sizes of a problem, as the repairing kernels take them."""
    win = problem.win
    return (
        *win.kernel[1:], *win.stride[1:], *win.before[1:], *win.dilation[1:],
        *problem.size[1:], *problem.out_size[1:],
        problem.groups, problem.channels // problem.groups, problem.filters // problem.groups,
    )  # fmt: skip


ALGORITHM = Algorithm(
    "fft",
    supports,
    _cost,
    forward,
    input_gradient,
    weight_gradient,
    {
        "forward": (*TRANSFORM_SHADERS, REPAIR[False]),
        "input_gradient": (*TRANSFORM_SHADERS, REPAIR[True]),
        "weight_gradient": (*TRANSFORM_SHADERS, WEIGHT_REPAIR),
    },
)
