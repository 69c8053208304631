"""Depthwise convolution on devices, with a kernel for each direction.

Where each filter sees one channel there is too little to multiply for a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping

from dl4all.ops.conv.costs import COST_PER_LAUNCH
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.core.launch import MAX_GRID_SIZE, ceil_div, check_rounds, pack, run, shader, strided_grid
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo

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
    rows, layers = min(problem.filters, MAX_GRID_SIZE), min(problem.images, MAX_GRID_SIZE)
    wide, _, _ = strided_grid(problem.out_pixels, WORKGROUP)
    rounds = ceil_div(problem.out_pixels, wide * WORKGROUP)
    check_rounds(out.device, rounds * problem.kernel_elements)
    push = _push(problem, x.offset, w.offset, wide * WORKGROUP, rows, layers, *bias_constants(bias))
    flops = 2 * out.numel() * problem.kernel_elements
    run(FORWARD, (wide, rows, layers), push, x, w, x if bias is None else bias, out, flops=flops)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    rows, layers = min(problem.channels, MAX_GRID_SIZE), min(problem.images, MAX_GRID_SIZE)
    wide, _, _ = strided_grid(problem.in_pixels, WORKGROUP)
    rounds = ceil_div(problem.in_pixels, wide * WORKGROUP)
    check_rounds(out.device, rounds * problem.kernel_elements * (problem.filters // problem.channels))
    push = _push(problem, g.offset, w.offset, wide * WORKGROUP, rows, layers, 0, 0)
    flops = 2 * g.numel() * problem.kernel_elements
    run(INPUT_GRADIENT, (wide, rows, layers), push, g, w, out, flops=flops)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem) -> None:
    rows = min(problem.filters, MAX_GRID_SIZE)
    check_rounds(out.device, problem.images * (ceil_div(problem.out_pixels, WORKGROUP) + 1))
    push = _push(problem, g.offset, x.offset, rows)
    flops = 2 * g.numel() * problem.kernel_elements
    run(WEIGHT_GRADIENT, (problem.kernel_elements, rows, 1), push, g, x, out, flops=flops)


def _push(problem: Problem, *rest: int) -> bytes:
    multiplier = problem.filters // problem.channels
    return pack(
        *problem.win.words, *problem.size, *problem.out_size,
        problem.images, problem.channels, multiplier, *rest,
    )  # fmt: skip


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
