"""Convolution on devices by implicit GEMM (Chetlur et al., cuDNN, 2014).

It is the matrix product of im2col whose second operand is read from the image as the product needs it,
through shared memory, which suits GPUs. With stride 1 the gradient of the input is a convolution with flipped
filters.
"""

from __future__ import annotations

from dl4all.ops.conv.costs import COST_PER_LAUNCH, COST_PER_RESULT, gemm_cost
from dl4all.ops.conv.direct import filter_strides
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.core.launch import MAX_GRID_SIZE, MAX_LOOP_ROUNDS, ceil_div, pack, shader
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo
from dl4all.scheduler.programs import Launch

IMPLICIT_GEMM = shader("conv/implicit_gemm.comp")

ROWS, COLUMNS, DEPTH = 64, 64, 8  # of a workgroup of implicit_gemm.comp

COST_PER_SHARED_FLOAT = 20  # Finding a float and writing it to shared memory where it is multiplied.
NO_SHARED_MEMORY_RATIO = 15  # How much longer the product takes where shared memory is ordinary memory.


def _supports(info: DeviceInfo, problem: Problem, direction: Direction) -> bool:
    if problem.depthwise or direction == "weight_gradient":
        return False
    if direction == "input_gradient":
        return set(problem.win.stride) == {1} and _fits(problem.flipped)
    return _fits(problem)


def _fits(problem: Problem) -> bool:
    return (
        not problem.empty
        and max(_grid(problem)) <= MAX_GRID_SIZE
        and ceil_div(problem.reduction_size, DEPTH) <= MAX_LOOP_ROUNDS
    )


def _cost(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    if direction == "input_gradient":
        problem = problem.flipped
    filters, columns = problem.filters // problem.groups, problem.images * problem.out_pixels
    product = gemm_cost(info, filters, columns, problem.reduction_size)
    shared = COST_PER_SHARED_FLOAT * ceil_div(filters, ROWS) * columns * problem.reduction_size
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
    push = pack(
        *win.stride, *win.dilation, *win.before, *problem.size, *problem.out_size,
        problem.images, problem.channels // problem.groups, problem.filters // problem.groups,
        x.offset, problem.channels * problem.in_pixels, *filter_strides(w, problem, flip),
        *bias_constants(bias), problem.filters * problem.out_pixels,
    )  # fmt: skip
    launch = Launch(IMPLICIT_GEMM, _grid(problem), push, win.kernel, flops=problem.flops)
    operands = (x, w, x if bias is None else bias, out)
    out.device.launch(launch, *(tensor.storage for tensor in operands))


def _grid(problem: Problem) -> tuple[int, int, int]:
    columns, filters = problem.images * problem.out_pixels, problem.filters // problem.groups
    return ceil_div(columns, COLUMNS), ceil_div(filters, ROWS), problem.groups


ALGORITHM = Algorithm(
    "implicit_gemm",
    _supports,
    _cost,
    forward,
    input_gradient,
    None,
    {"forward": (IMPLICIT_GEMM,), "input_gradient": (IMPLICIT_GEMM,)},
)
