"""Winograd's convolution with 3x3 filters on devices (Lavin and Gray, 2016).

A tile of 4x4 results takes 36 multiplications for each channel instead of 144, a tile of 2x2 takes 16 instead
of 36: images and filters are transformed, multiplied element by element, which summed over the channels is
one matrix product for each element, and transformed back. The gradient of the input is the same convolution
with flipped filters. The gradient of the filters takes the same products with other operands, transformed the
other way round. `shaders/conv/winograd.glsl` has the transforms.
"""

from __future__ import annotations

from functools import partial

from dl4all.config import winograd_setting
from dl4all.ops.conv.costs import COST_PER_FILTER_ELEMENT, COST_PER_LAUNCH, COST_PER_STORED_FLOAT, gemm_cost
from dl4all.ops.conv.filter_cache import derived_cache, empty_filters
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels.launch import ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS, PANEL, GemmProblem, best_panel, gemm
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.spirv import Shader

TILES = (2, 4)
"""The numbers of results along each side of a tile that is computed at once."""

WINOGRAD_WEIGHT_PUSH = PushBlock("conv/winograd_weight.comp", "uint rows, columns, pitch, position_step;")
WINOGRAD_IMAGE_PUSH = PushBlock(
    "conv/winograd_image.comp",
    "uint channels, height, width, padding_h, padding_w, tiles_per_row, tiles, first, count, pitch, panel, "
    "x_offset, x_step, position_step;",
)
WINOGRAD_WEIGHT_REPAIR_PUSH = PushBlock(
    "conv/winograd_weight_repair.comp",
    "uint rows, columns, pitch, height, width, padding_h, padding_w, out_height, out_width, first, count, "
    "g_offset, x_offset;",
)
WINOGRAD_RESULT_PUSH = PushBlock(
    "conv/winograd_result.comp",
    "uint filters, height, width, tiles_per_row, tiles, first, count, pitch, position_step, has_bias, "
    "bias_offset;",
)
WINOGRAD_REPAIR_PUSH = PushBlock(
    "conv/winograd_repair.comp",
    "uint channels, in_height, in_width, padding_h, padding_w, filters, out_height, out_width, "
    "tiles_per_row, tiles, first, count, x_offset, w_offset, has_bias, bias_offset;",
)
WINOGRAD_FILTER_PUSH = PushBlock(
    "conv/winograd_filter.comp",
    "uint rows, columns, pitch, position_step, w_offset;",
)
IMAGE, GRADIENT = (
    {tile: shader("conv/winograd_image.comp", TILE=tile, GRADIENT=gradient) for tile in TILES}
    for gradient in (0, 1)
)
FILTER, REPAIR = (
    {
        (tile, flip): shader(f"conv/winograd_{kernel}.comp", TILE=tile, FLIP=int(flip))
        for tile in TILES
        for flip in (False, True)
    }
    for kernel in ("filter", "repair")
)
RESULT = {tile: shader("conv/winograd_result.comp", TILE=tile) for tile in TILES}
WEIGHT = {tile: shader("conv/winograd_weight.comp", TILE=tile) for tile in TILES}
WEIGHT_REPAIR = shader("conv/winograd_weight_repair.comp", TILE=2)

WORKGROUP = 64  # invocations
MAX_CHANNELS = 4000  # With 16 results of a tile each, loops stay below llvmpipe's limit of 65535 rounds.
ROUNDS_PER_LAUNCH = 2**15  # Output pixels that a repairing kernel sums up at a time, for the same limit.
TILE_BYTES = 2**23  # Transformed tiles at a time: little enough for caches, enough to keep a device busy.


def _supports(info: DeviceInfo, problem: Problem, direction: Direction, *, tile: int) -> bool:
    if direction == "input_gradient":
        problem = problem.flipped
    fits = (
        problem.win.kernel == (1, 3, 3)
        and set(problem.win.stride) == set(problem.win.dilation) == {1}
        and problem.groups == 1
        and problem.size[0] == problem.out_size[0] == 1
        and min(problem.images, problem.channels, problem.filters) > 0
        and max(problem.channels, problem.filters) <= MAX_CHANNELS
        and winograd_setting()
    )
    # The largest of the matrices, even if only a few tiles are transformed at a time.
    filters = problem.filters * (problem.channels + 3)
    matrix = max(filters, max(problem.channels, problem.filters) * PANEL)
    return fits and (tile + 2) ** 2 * matrix <= info.limits.storage_buffer_range // 4


def _cost(info: DeviceInfo, problem: Problem, direction: Direction, *, tile: int) -> float:
    if direction == "input_gradient":
        problem = problem.flipped
    channels, filters, tiles = problem.channels, problem.filters, problem.tiles(tile)
    columns, reduction_size = (channels, tiles) if direction == "weight_gradient" else (tiles, channels)
    product = gemm_cost(info, filters, columns, reduction_size)
    moved = COST_PER_STORED_FLOAT * (channels + filters) * tiles
    moved += COST_PER_FILTER_ELEMENT[direction] * channels * filters
    return (tile + 2) ** 2 * (product + moved) + 4 * COST_PER_LAUNCH


def forward(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem, *, tile: int
) -> None:
    _convolve(out, x, w, bias, problem, tile, flip=False)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem, *, tile: int) -> None:
    _convolve(out, g, w, None, problem.flipped, tile, flip=True)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem, *, tile: int) -> None:
    """Tiles that do not fit at once are multiplied one portion after the other."""
    positions = (tile + 2) ** 2
    count = problem.tiles(tile)
    span = _portion(problem, tile, 4)
    images, gradients = (
        empty(type(out), (positions, rows, span), FLOAT32, out.device)
        for rows in (problem.channels, problem.filters)
    )
    columns = ceil_div(problem.channels, 4) * 4
    size = problem.filters * columns
    filters = empty(type(out), (positions, problem.filters, columns), FLOAT32, out.device)
    for first_tile in range(0, count, span):
        tile_count = min(span, count - first_tile)
        pitch = ceil_div(tile_count, 4) * 4
        _transform(images, x, problem, tile, first_tile, tile_count, pitch, pitch)
        _transform(gradients, g, problem, tile, first_tile, tile_count, pitch, pitch, gradient=True)
        product = GemmProblem(
            m=problem.filters, n=problem.channels, k=tile_count,
            lda=pitch, ldb=pitch, ldc=columns,
            batch=positions,
            a_step=problem.filters * pitch,
            b_step=problem.channels * pitch,
            c_step=size,
            transpose_b=True,
            bias_row=columns, bias_column=1, bias_step=size,
        )  # fmt: skip
        gemm(filters, gradients, images, filters if first_tile > 0 else None, product)
    push = WINOGRAD_WEIGHT_PUSH.pack(
        rows=problem.filters, columns=problem.channels, pitch=columns, position_step=size
    )
    _launch(WEIGHT[tile], problem.filters, problem.channels, push, filters, out)
    pixels = problem.images * problem.out_pixels
    for first_pixel in range(0, pixels, ROUNDS_PER_LAUNCH):
        push = WINOGRAD_WEIGHT_REPAIR_PUSH.pack(
            problem.filters, problem.channels, columns,
            *problem.size[1:], *problem.win.before[1:], *problem.out_size[1:],
            first_pixel, min(ROUNDS_PER_LAUNCH, pixels - first_pixel), g.offset, x.offset,
        )  # fmt: skip
        _launch(WEIGHT_REPAIR, problem.filters, problem.channels, push, filters, g, x, out)


def _convolve(
    out: TensorBase,
    x: TensorBase,
    w: TensorBase,
    bias: TensorBase | None,
    problem: Problem,
    tile: int,
    *,
    flip: bool,
) -> None:
    """With `flip`, `w` are the filters of the convolution whose input's gradient this is."""
    _, height, width = problem.out_size
    positions = (tile + 2) ** 2
    count = problem.tiles(tile)
    panel = best_panel(x.device, count)
    span = _portion(problem, tile, panel)
    bias_or_any = x if bias is None else bias
    filters = _transformed_filters(w, problem, tile, flip)
    lda = filters.shape[2]
    images, products = (
        empty(type(out), (positions, rows, span), FLOAT32, out.device)
        for rows in (problem.channels, problem.filters)
    )
    for first_tile in range(0, count, span):
        tile_count = min(span, count - first_tile)
        pitch = ceil_div(tile_count, panel) * panel
        _transform(images, x, problem, tile, first_tile, tile_count, pitch, panel)
        product = GemmProblem(
            m=problem.filters, n=ceil_div(tile_count, 4) * 4, k=problem.channels,
            lda=lda, ldb=panel, ldc=pitch,
            batch=positions,
            a_step=problem.filters * lda,
            b_step=problem.channels * pitch,
            c_step=problem.filters * pitch,
            panel=panel,
            panel_step=problem.channels * panel,
        )  # fmt: skip
        gemm(products, filters, images, None, product)
        tiles = (*_tile_counts(problem, tile), first_tile, tile_count)
        push = WINOGRAD_RESULT_PUSH.pack(
            problem.filters, height, width, *tiles, pitch, problem.filters * pitch, *bias_constants(bias)
        )
        _launch(RESULT[tile], problem.filters, tile_count, push, products, bias_or_any, out)
        push = WINOGRAD_REPAIR_PUSH.pack(
            problem.channels, *problem.size[1:], *problem.win.before[1:], problem.filters, height, width,
            *tiles, x.offset, w.offset, *bias_constants(bias),
        )  # fmt: skip
        _launch(REPAIR[tile, flip], problem.filters, tile_count, push, x, w, bias_or_any, out)


def _transformed_filters(w: TensorBase, problem: Problem, tile: int, flip: bool) -> TensorBase:
    """One matrix for each element of a transformed filter, with a row for each filter of `problem` and a
    column for each channel; rows begin at multiples of 4 elements.

    Shape:
        ((tile + 2) ** 2, filters, columns)
    """

    def transform() -> TensorBase:
        pitch = ceil_div(problem.channels, 4) * 4
        filters = empty_filters(w, (tile + 2) ** 2, problem.filters, pitch)
        push = WINOGRAD_FILTER_PUSH.pack(
            rows=problem.filters,
            columns=problem.channels,
            pitch=pitch,
            position_step=problem.filters * pitch,
            w_offset=w.offset,
        )
        _launch(FILTER[tile, flip], problem.filters, problem.channels, push, w, filters)
        return filters

    return derived_cache(w).get(w, (w.offset, problem.filters, problem.channels, tile, flip), transform)


def _transform(
    out: TensorBase,
    x: TensorBase,
    problem: Problem,
    tile: int,
    first_tile: int,
    tile_count: int,
    pitch: int,
    panel: int,
    *,
    gradient: bool = False,
) -> None:
    """Transform `tile_count` tiles from `first_tile` on, of the images or of the gradients of the results."""
    channels, size = (problem.filters, problem.out_size) if gradient else (problem.channels, problem.size)
    _, height, width = size
    before = (0, 0) if gradient else problem.win.before[1:]
    push = WINOGRAD_IMAGE_PUSH.pack(
        channels, height, width, *before, *_tile_counts(problem, tile),
        first_tile, tile_count, pitch, panel, x.offset, channels * height * width, channels * pitch,
    )  # fmt: skip
    code = GRADIENT[tile] if gradient else IMAGE[tile]
    _launch(code, channels, pitch, push, x, out)


def _portion(problem: Problem, tile: int, multiple: int) -> int:
    """The number of tiles that are transformed at a time, a multiple of `multiple`."""
    max_tiles = TILE_BYTES // 4 // ((tile + 2) ** 2 * max(problem.channels, problem.filters))
    return min(ceil_div(problem.tiles(tile), multiple), max(1, max_tiles // multiple)) * multiple


def _tile_counts(problem: Problem, tile: int) -> tuple[int, int]:
    """The numbers of tiles of a row and of an image."""
    _, height, width = problem.out_size
    per_row = ceil_div(width, tile)
    return per_row, per_row * ceil_div(height, tile)


def _launch(code: Shader, rows: int, columns: int, push: bytes, *tensors: TensorBase) -> None:
    """Launch a kernel with an invocation for each column and row.

    A workgroup, whose sizes are the constants, has several rows where there are few columns.
    """
    wide = min(WORKGROUP, max(8, 1 << (columns - 1).bit_length()))
    high = WORKGROUP // wide
    grid = (ceil_div(columns, wide), ceil_div(rows, high), 1)
    run(code, grid, push, *tensors, constants=(wide, high))


def _algorithm(tile: int) -> Algorithm:
    return Algorithm(
        f"winograd{tile}",
        partial(_supports, tile=tile),
        partial(_cost, tile=tile),
        partial(forward, tile=tile),
        partial(input_gradient, tile=tile),
        partial(weight_gradient, tile=tile),
        {
            "forward": _convolution_shaders(tile, flip=False),
            "input_gradient": _convolution_shaders(tile, flip=True),
            "weight_gradient": (IMAGE[tile], GRADIENT[tile], WEIGHT[tile], WEIGHT_REPAIR, *GEMM_SHADERS),
        },
    )


def _convolution_shaders(tile: int, *, flip: bool) -> tuple[Shader, ...]:
    return (IMAGE[tile], RESULT[tile], FILTER[tile, flip], REPAIR[tile, flip], *GEMM_SHADERS)


ALGORITHMS = tuple(_algorithm(tile) for tile in TILES)
