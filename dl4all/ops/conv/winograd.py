"""Winograd's convolution with 3x3 filters on devices (Lavin and Gray, 2016).

A tile of 4x4 results takes 36 multiplications for each channel instead of 144, one of 2x2 takes 16 instead
of 36: images and filters are transformed, multiplied element by element, which summed over the channels is
one matrix product for each element, and transformed back. The gradient of the input is the same convolution
with turned filters, and that of the filters the same products with other operands, transformed the other way
round. `shaders/conv/winograd.glsl` has the transforms.

All functions here take problems with 3x3 filters, stride and dilation 1, and one group.
"""

from __future__ import annotations

from dl4all.ops.conv.filter_cache import FILTERS, run_plane, transformed
from dl4all.ops.conv.problem import Problem
from dl4all.ops.core.launch import ceil_div, pack, shader
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.gemm import GEMM_SHADERS, GemmProblem, best_panel, gemm

IMAGE, GRADIENT = (
    {tile: shader("conv/winograd_image.comp", TILE=tile, GRADIENT=gradient) for tile in (2, 4)}
    for gradient in (0, 1)
)
RESULT = {tile: shader("conv/winograd_result.comp", TILE=tile) for tile in (2, 4)}
REPAIR = {
    (tile, turn): shader("conv/winograd_repair.comp", TILE=tile, TURN=int(turn))
    for tile in (2, 4)
    for turn in (False, True)
}
WEIGHT = {tile: shader("conv/winograd_weight.comp", TILE=tile) for tile in (2, 4)}
WEIGHT_REPAIR = shader("conv/winograd_weight_repair.comp", TILE=2)
SHADERS = (*IMAGE.values(), *RESULT.values(), *GEMM_SHADERS)
FORWARD_SHADERS, INPUT_SHADERS = (
    (*SHADERS, *(code[tile, turn] for code in (FILTERS, REPAIR) for tile in (2, 4))) for turn in (False, True)
)
WEIGHT_SHADERS = (*IMAGE.values(), *GRADIENT.values(), *WEIGHT.values(), WEIGHT_REPAIR, *GEMM_SHADERS)

ROUNDS = 2**15  # of a loop in one launch
TILE_BYTES = 2**23  # of transformed tiles at a time; little enough for caches, enough to be busy with


def convolve(
    out: TensorBase,
    x: TensorBase,
    w: TensorBase,
    bias: TensorBase | None,
    q: Problem,
    tile: int,
    turn: bool = False,
) -> None:
    """Fill `out` with the convolution of contiguous tensors.

    Args:
        tile: 2 or 4, results along each side of a tile.
        turn: `w` are the filters of the convolution whose input's gradient this is.
    """
    _, height, width = q.out_size
    positions = (tile + 2) ** 2
    count = q.tiles(tile)
    panel = best_panel(x.device, count)
    span = _portion(q, tile, panel)
    extra = (0, 0) if bias is None else (1, bias.offset)
    filters = transformed(w, q, tile, turn)
    lda = filters.shape[2]
    images, products = (
        empty(type(out), (positions, rows, span), out.dtype, out.device) for rows in (q.channels, q.filters)
    )
    for first in range(0, count, span):
        here = min(span, count - first)
        pitch = ceil_div(here, panel) * panel
        _transform(images, x, q, tile, first, here, pitch, panel)
        product = GemmProblem(
            m=q.filters, n=ceil_div(here, 4) * 4, k=q.channels,
            lda=lda, ldb=panel, ldc=pitch,
            batch=positions,
            a_step=q.filters * lda,
            b_step=q.channels * pitch,
            c_step=q.filters * pitch,
            panel=panel,
            panel_step=q.channels * panel,
        )  # fmt: skip
        gemm(products, filters, images, None, product)
        push = pack(
            q.filters, height, width, *_grid(q, tile), first, here, pitch, q.filters * pitch,
            *extra,
        )  # fmt: skip
        run_plane(RESULT[tile], q.filters, here, push, products, x if bias is None else bias, out)
        push = pack(
            q.channels, *q.size[1:], *q.win.before[1:], q.filters, height, width,
            *_grid(q, tile), first, here, x.offset, w.offset, *extra,
        )  # fmt: skip
        run_plane(REPAIR[tile, turn], q.filters, here, push, x, w, x if bias is None else bias, out)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, q: Problem, tile: int) -> None:
    """Fill `out`, of the weight's shape, from the gradient `g` of the output and the input.

    Tiles that do not fit at once are multiplied one portion after the other.
    """
    positions = (tile + 2) ** 2
    count = q.tiles(tile)
    span = _portion(q, tile, 4)
    images, gradients = (
        empty(type(out), (positions, rows, span), out.dtype, out.device) for rows in (q.channels, q.filters)
    )
    columns = ceil_div(q.channels, 4) * 4
    size = q.filters * columns
    filters = empty(type(out), (positions, q.filters, columns), out.dtype, out.device)
    for first in range(0, count, span):
        here = min(span, count - first)
        pitch = ceil_div(here, 4) * 4
        _transform(images, x, q, tile, first, here, pitch, pitch)
        _transform(gradients, g, q, tile, first, here, pitch, pitch, gradient=True)
        product = GemmProblem(
            m=q.filters, n=q.channels, k=here,
            lda=pitch, ldb=pitch, ldc=columns,
            batch=positions,
            a_step=q.filters * pitch,
            b_step=q.channels * pitch,
            c_step=size,
            transpose_b=True,
            bias_row=columns, bias_column=1, bias_step=size,
        )  # fmt: skip
        gemm(filters, gradients, images, filters if first > 0 else None, product)
    push = pack(q.filters, q.channels, columns, size)
    run_plane(WEIGHT[tile], q.filters, q.channels, push, filters, out)
    pixels = q.images * q.pixels
    for first in range(0, pixels, ROUNDS):
        push = pack(
            q.filters, q.channels, columns, *q.size[1:], *q.win.before[1:], *q.out_size[1:],
            first, min(ROUNDS, pixels - first), g.offset, x.offset,
        )  # fmt: skip
        run_plane(WEIGHT_REPAIR, q.filters, q.channels, push, filters, g, x, out)


def _portion(q: Problem, tile: int, multiple: int) -> int:
    """Tiles, a multiple of so many, that are transformed at a time."""
    most = TILE_BYTES // 4 // ((tile + 2) ** 2 * max(q.channels, q.filters))
    return min(ceil_div(q.tiles(tile), multiple), max(1, most // multiple)) * multiple


def _grid(q: Problem, tile: int) -> tuple[int, int]:
    """Tiles in a row and in an image."""
    _, height, width = q.out_size
    across = ceil_div(width, tile)
    return across, across * ceil_div(height, tile)


def _transform(
    out: TensorBase,
    x: TensorBase,
    q: Problem,
    tile: int,
    first: int,
    here: int,
    pitch: int,
    panel: int,
    *,
    gradient: bool = False,
) -> None:
    """`here` tiles from `first` on, of the images or of the gradients of the results."""
    channels, size = (q.filters, q.out_size) if gradient else (q.channels, q.size)
    _, height, width = size
    push = pack(
        channels, height, width, *((0, 0) if gradient else q.win.before[1:]), *_grid(q, tile),
        first, here, pitch, panel, x.offset, channels * height * width, channels * pitch,
    )  # fmt: skip
    code = GRADIENT[tile] if gradient else IMAGE[tile]
    run_plane(code, channels, pitch, push, x, out)
