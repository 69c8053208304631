"""Depthwise convolution on devices, with a kernel for each direction.

Where each filter sees one channel there is too little to multiply for a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dl4all.ops.conv.costs import COST_PER_LAUNCH
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.core.kernels.launch import (
    MAX_GRID_SIZE,
    ceil_div,
    check_rounds,
    rounded_groups,
    run,
    shader,
    strided_grid,
)
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.protocols import Grid
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.device import Device

DEPTHWISE_WEIGHT_PUSH = PushBlock(
    "conv/depthwise_weight.comp",
    "uint kernel_d, kernel_h, kernel_w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, "
    "dilation_d, dilation_h, dilation_w, depth, height, width, out_depth, out_height, out_width, images, "
    "channels, multiplier, g_offset, x_offset, rows;",
)
DEPTHWISE_PUSH = PushBlock(
    "conv/depthwise.comp",
    "uint padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w, depth, height, width, "
    "out_depth, out_height, out_width, images, channels, multiplier, x_offset, w_offset, step, rows, "
    "layers, has_bias, bias_offset;",
)
FORWARD = shader("conv/depthwise.comp", PASS=0)
INPUT_GRADIENT = shader("conv/depthwise.comp", PASS=1)
WEIGHT_GRADIENT = shader("conv/depthwise_weight.comp")

WORKGROUP = 64  # invocations
COST_PER_TERM: Mapping[Direction, int] = {"forward": 90, "input_gradient": 110, "weight_gradient": 350}
CACHED_COST_PER_TERM = 10  # On GPUs, where a cache holds what neighbouring invocations read.


def _supports(info: DeviceInfo, problem: Problem, direction: Direction) -> bool:
    return problem.depthwise


def _cost(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    per_term = COST_PER_TERM[direction] if info.type == "software" else CACHED_COST_PER_TERM
    terms = problem.images * problem.filters * problem.out_pixels * problem.kernel_elements
    return terms * per_term + COST_PER_LAUNCH


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem) -> None:
    grid = _grid(problem.out_pixels, problem.filters, problem.images, out.device)
    rounds = ceil_div(problem.out_pixels, grid[0] * WORKGROUP)
    check_rounds(out.device, rounds * problem.kernel_elements)
    flops = 2 * out.numel() * problem.kernel_elements
    operands = x, w, x if bias is None else bias
    _launch(FORWARD, grid, problem, operands, out, bias_constants(bias), flops)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    grid = _grid(problem.in_pixels, problem.channels, problem.images, out.device)
    rounds = ceil_div(problem.in_pixels, grid[0] * WORKGROUP)
    check_rounds(out.device, rounds * problem.kernel_elements * (problem.filters // problem.channels))
    flops = 2 * g.numel() * problem.kernel_elements
    _launch(INPUT_GRADIENT, grid, problem, (g, w), out, (0, 0), flops)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem) -> None:
    rows = min(problem.filters, MAX_GRID_SIZE)
    check_rounds(out.device, problem.images * (ceil_div(problem.out_pixels, WORKGROUP) + 1))
    push = DEPTHWISE_WEIGHT_PUSH.pack(
        *problem.win.words, *problem.size, *problem.out_size,
        problem.images, problem.channels, problem.filters // problem.channels, g.offset, x.offset, rows,
    )  # fmt: skip
    flops = 2 * g.numel() * problem.kernel_elements
    run(WEIGHT_GRADIENT, (problem.kernel_elements, rows, 1), push, g, x, out, flops=flops)


def _grid(pixels: int, planes: int, images: int, device: Device) -> Grid:
    """Pixels, planes of an image and images; the kernel strides over all three."""
    wide, _, _ = strided_grid(pixels, WORKGROUP)
    return wide, min(rounded_groups(planes, device), MAX_GRID_SIZE), min(images, MAX_GRID_SIZE)


def _launch(
    code: Shader,
    grid: Grid,
    problem: Problem,
    operands: Sequence[TensorBase],
    out: TensorBase,
    bias: Sequence[int],
    flops: int,
) -> None:
    wide, rows, layers = grid
    win, multiplier = problem.win, problem.filters // problem.channels
    push = DEPTHWISE_PUSH.pack(
        *win.before, *win.dilation, *problem.size, *problem.out_size,
        problem.images, problem.channels, multiplier, operands[0].offset, operands[1].offset,
        wide * WORKGROUP, rows, layers, *bias,
    )  # fmt: skip
    run(code, grid, push, *operands, out, constants=(*win.kernel, *win.stride), flops=flops)


ALGORITHM = Algorithm(
    "depthwise",
    _supports,
    _cost,
    forward,
    input_gradient,
    weight_gradient,
    {
        "forward": (FORWARD,),
        "input_gradient": (INPUT_GRADIENT,),
        "weight_gradient": (WEIGHT_GRADIENT,),
    },
)
