"""Convolution on devices by implicit GEMM (Chetlur et al., cuDNN, 2014).

It is the matrix product of im2col whose second operand is read from the image as the product needs it,
through shared memory, which suits GPUs. With stride 1 the gradient of the input is a convolution with flipped
filters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dl4all.ops.conv.costs import COST_PER_LAUNCH, COST_PER_RESULT, gemm_cost
from dl4all.ops.conv.direct import filter_strides
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, MAX_LOOP_ROUNDS, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo

IMPLICIT_GEMM_PUSH = PushBlock(
    "conv/implicit_gemm.comp",
    "uint stride_d, stride_h, stride_w, dilation_d, dilation_h, dilation_w; int padding_d, padding_h, "
    "padding_w; uint depth, height, width, out_depth, out_height, out_width, images, channels, filters, "
    "x_offset, x_step, w_offset, group_step, filter_step; int channel_step, tap_step; uint has_bias, "
    "bias_offset, y_step;",
)
IMPLICIT_GEMM = shader("conv/implicit_gemm.comp")

DEPTH = 8  # Terms of the sums that a workgroup of implicit_gemm.comp multiplies at a time.
LANES_ALONG_AXIS = 8  # of its 64 invocations
MAX_TAPS = 256  # Elements of a window: the shared memory of every device holds a table of this many.
MAX_COORDINATES = 31  # of a window, along all axes: a bit for each

COST_PER_SHARED_FLOAT = 20  # Finding a float and writing it to shared memory where it is multiplied.
NO_SHARED_MEMORY_RATIO = 15  # How much longer the product takes where shared memory is ordinary memory.


class ImplicitTile(NamedTuple):
    """The results that an invocation computes."""

    filters: int  # a multiple of 4
    quads: int  # groups of four pixels

    @property
    def rows(self) -> int:
        """Filters of a workgroup."""
        return LANES_ALONG_AXIS * self.filters

    @property
    def columns(self) -> int:
        """Pixels of a workgroup."""
        return LANES_ALONG_AXIS * 4 * self.quads


TILES = (ImplicitTile(8, 2), ImplicitTile(8, 1), ImplicitTile(4, 1))
"""From the one that loads least for each multiplication to the one with the most workgroups."""

FEW_FILTERS = ImplicitTile(4, 2)  # for groups that half of a row of the larger tiles holds

BUSY_WORKGROUPS = {"integrated": 64}
"""So many workgroups keep a device of a type busy."""

BUSY_ELSEWHERE = 256


def _supports(info: DeviceInfo, problem: Problem, direction: Direction) -> bool:
    if problem.depthwise or direction == "weight_gradient":
        return False
    if direction == "input_gradient":
        return set(problem.win.stride) == {1} and _fits(problem.flipped)
    return _fits(problem)


def _fits(problem: Problem) -> bool:
    return (
        not problem.empty
        and problem.kernel_elements <= MAX_TAPS
        and sum(problem.win.kernel) <= MAX_COORDINATES
        and max(_grid(problem, TILES[-1])) <= MAX_GRID_SIZE
        and ceil_div(problem.reduction_size, DEPTH) <= MAX_LOOP_ROUNDS
    )


def _cost(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    if direction == "input_gradient":
        problem = problem.flipped
    filters, columns = problem.filters // problem.groups, problem.images * problem.out_pixels
    product = gemm_cost(info, filters, columns, problem.reduction_size)
    shared = COST_PER_SHARED_FLOAT * ceil_div(filters, TILES[0].rows) * columns * problem.reduction_size
    ratio = NO_SHARED_MEMORY_RATIO if info.type == "software" else 1
    group_cost = ratio * product + shared + COST_PER_RESULT * filters * columns
    return problem.groups * group_cost + COST_PER_LAUNCH


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem) -> None:
    _convolve(out, x, w, bias, problem, flip=False)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    _convolve(out, g, w, None, problem.flipped, flip=True)


def _convolve(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem, *, flip: bool
) -> None:
    """With `flip`, `w` are the filters of the convolution whose input's gradient this is."""
    win = problem.win
    push = IMPLICIT_GEMM_PUSH.pack(
        *win.stride, *win.dilation, *win.before, *problem.size, *problem.out_size,
        problem.images, problem.channels // problem.groups, problem.filters // problem.groups,
        x.offset, problem.channels * problem.in_pixels, *filter_strides(w, problem, flip),
        *bias_constants(bias), problem.filters * problem.out_pixels,
    )  # fmt: skip
    tile = tile_of(out.device.info, problem)
    # Filters that follow one another and begin at multiples of four are read four terms at a time.
    reads_vectors = not (flip or problem.reduction_size % 4 or w.offset % 4)
    whole = problem.reduction_size % DEPTH == 0
    constants = (*win.kernel, *tile, int(reads_vectors), int(whole))
    operands = (x, w, x if bias is None else bias, out)
    grid = _grid(problem, tile)
    run(IMPLICIT_GEMM, grid, push, *operands, constants=constants, flops=problem.flops)


def tile_of(info: DeviceInfo, problem: Problem) -> ImplicitTile:
    """The largest tile that makes enough workgroups for a device; every tile gives the same sums."""
    if info.type == "software":
        return TILES[1]  # the fastest of them there
    if problem.filters // problem.groups <= FEW_FILTERS.rows:
        tiles: tuple[ImplicitTile, ...] = (FEW_FILTERS, TILES[-1])
    else:
        tiles = TILES
    busy = BUSY_WORKGROUPS.get(info.type, BUSY_ELSEWHERE)
    return next((tile for tile in tiles if math.prod(_grid(problem, tile)) >= busy), tiles[-1])


def _grid(problem: Problem, tile: ImplicitTile) -> tuple[int, int, int]:
    columns, filters = problem.images * problem.out_pixels, problem.filters // problem.groups
    return ceil_div(columns, tile.columns), ceil_div(filters, tile.rows), problem.groups


ALGORITHM = Algorithm(
    "implicit_gemm",
    _supports,
    _cost,
    forward,
    input_gradient,
    None,
    {"forward": (IMPLICIT_GEMM,), "input_gradient": (IMPLICIT_GEMM,)},
)
