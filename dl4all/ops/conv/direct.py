"""Direct convolution on devices, without a matrix of unrolled windows.

An invocation computes some neighbouring pixels of several filters from what it reads itself, which suits few
channels. With stride 1 the gradient of the input is a convolution with flipped filters; the gradient of the
filters has a kernel of its own.
"""

from __future__ import annotations

from dl4all.ops.conv.costs import COST_PER_LAUNCH, COST_PER_RESULT
from dl4all.ops.conv.problem import Algorithm, Direction, Problem, bias_constants
from dl4all.ops.conv.slots import SUM, sum_slots
from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels.launch import MAX_GRID_SIZE, MAX_LOOP_ROUNDS, ceil_div, run, shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.device_info import DeviceInfo

DIRECT_WEIGHT_PUSH = PushBlock(
    "conv/direct_weight.comp",
    "uint kernel_d, kernel_h, stride_d, stride_h, dilation_d, dilation_h; int padding_d, padding_h; uint "
    "depth, height, width, out_depth, out_height, out_width, images, groups, channels, filters, blocks, "
    "g_offset, x_offset, slot;",
)
DIRECT_PUSH = PushBlock(
    "conv/direct.comp",
    "uint kernel_d, kernel_h, stride_d, stride_h, dilation_d, dilation_h; int padding_d, padding_h; uint "
    "depth, height, width, out_depth, out_height, out_width, channels, filters, blocks, x_offset, x_step, "
    "w_offset, group_step, filter_step; int channel_step, tap_step; uint has_bias, bias_offset, y_offset, "
    "y_step;",
)
DIRECT = {subgroups: shader("conv/direct.comp", SUBGROUPS=int(subgroups)) for subgroups in (False, True)}
DIRECT_WEIGHT = shader("conv/direct_weight.comp")

SOFTWARE_WORKGROUP = 32  # invocations
GPU_WORKGROUP = 64  # That many fill a subgroup of any GPU.
PIXELS = 4  # of one invocation, side by side
MAX_ROW_FLOATS = 64  # An invocation holds this much of an image's row in registers.
MAX_SUMS = 128  # Sums of an invocation of the gradient of filters, on processors.
MAX_SUMS_OF_ROWS = (
    80  # With more than this it takes one row of the filters only, and a GPU would hold too few.
)
EXCHANGED_SUMS = (
    16  # A fifth of these: what a GPU's workgroup exchanges at a time, to leave shared memory to others.
)
SOFTWARE_EXCHANGED_SUMS = 96  # These fit the shared memory of every device.
BUSY_WORKGROUPS = 1024  # These keep a large GPU busy.
MIN_ROUNDS = 8  # An invocation's rounds from which on summing up its workgroup pays.
SLOT_BYTES = 2**25  # Gradients of filters that are computed side by side before they are summed up.

COST_PER_TERM = 3  # Multiplying and adding, where an invocation reads the operands itself.
SOFTWARE_FORWARD_COST_PER_TERM = 1.5  # The same on processors, compared to im2col's forward pass.
MAX_CACHED_FILTER = 1024  # elements; a term of a longer one, outside the nearest cache, costs twice that
COST_PER_ROW_FLOAT = 45  # Finding a float of an image's row and keeping it in a register.
WEIGHT_GRADIENT_RATIO = 1.3  # How much longer terms and floats take for the gradient of the filters.


def _supports(info: DeviceInfo, problem: Problem, direction: Direction) -> bool:
    if problem.depthwise:
        return False
    if direction == "weight_gradient":
        return _fits_weight_gradient(info, problem)
    if direction == "input_gradient":
        return set(problem.win.stride) == {1} and _fits(problem.flipped)
    return _fits(problem)


def _fits(problem: Problem) -> bool:
    """Whether every device can run :func:`_convolve`."""
    filters = problem.filters // problem.groups
    depth, height, _ = problem.win.kernel
    return (
        not problem.empty
        and _row_floats(problem) <= MAX_ROW_FLOATS
        and problem.groups * ceil_div(filters, _filters_per_invocation(filters)) <= MAX_GRID_SIZE
        and ceil_div(_invocations(problem), SOFTWARE_WORKGROUP) <= MAX_GRID_SIZE
        and problem.channels // problem.groups * depth * height <= MAX_LOOP_ROUNDS
    )


def _fits_weight_gradient(info: DeviceInfo, problem: Problem) -> bool:
    """Whether a device can run :func:`weight_gradient`."""
    if problem.empty or _row_floats(problem) > MAX_ROW_FLOATS:
        return False
    if _filters_and_rows(info, problem)[0] * problem.win.kernel[2] > MAX_SUMS:
        return False  # not even for one row
    grid = _weight_grid(info, problem)
    rounds = ceil_div(problem.images * _invocations(problem), grid[0] * _workgroup(info))
    return max(grid) <= MAX_GRID_SIZE and rounds + 2 * MAX_SUMS <= MAX_LOOP_ROUNDS


def _cost(info: DeviceInfo, problem: Problem, direction: Direction) -> float:
    if direction == "weight_gradient":
        return _weight_gradient_cost(info, problem) + 2 * COST_PER_LAUNCH
    if direction == "input_gradient":
        return _convolution_cost(problem.flipped, COST_PER_TERM) + COST_PER_LAUNCH
    per_term = SOFTWARE_FORWARD_COST_PER_TERM if info.type == "software" else COST_PER_TERM
    return _convolution_cost(problem, per_term) + COST_PER_LAUNCH


def _convolution_cost(problem: Problem, per_term: float) -> float:
    filters = problem.filters // problem.groups
    block = _filters_per_invocation(filters)
    invocations = problem.images * problem.groups * ceil_div(filters, block) * _invocations(problem)
    rows = problem.reduction_size // problem.win.kernel[2]
    cache_factor = 1 if problem.reduction_size <= MAX_CACHED_FILTER else 2
    terms = block * PIXELS * problem.reduction_size * cache_factor
    results = problem.images * problem.filters * problem.out_pixels
    return (
        invocations * (per_term * terms + COST_PER_ROW_FLOAT * rows * _row_floats(problem))
        + COST_PER_RESULT * results
    )


def _weight_gradient_cost(info: DeviceInfo, problem: Problem) -> float:
    filters = problem.filters // problem.groups
    block, rows = _filters_and_rows(info, problem)
    blocks = (
        problem.groups * ceil_div(filters, block) * problem.reduction_size // (rows * problem.win.kernel[2])
    )
    floats = block * PIXELS + rows * _row_floats(problem)
    terms = block * PIXELS * rows * problem.win.kernel[2]
    invocations = WEIGHT_GRADIENT_RATIO * problem.images * _invocations(problem) * blocks
    return invocations * (COST_PER_TERM * terms + COST_PER_ROW_FLOAT * floats)


def forward(out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem) -> None:
    _convolve(out, x, w, bias, problem, flip=False)


def input_gradient(out: TensorBase, g: TensorBase, w: TensorBase, problem: Problem) -> None:
    _convolve(out, g, w, None, problem.flipped, flip=True)


def weight_gradient(out: TensorBase, g: TensorBase, x: TensorBase, problem: Problem) -> None:
    """The order of all additions follows from the sizes."""
    info = out.device.info
    win, filters = problem.win, problem.filters // problem.groups
    block, rows = _filters_and_rows(info, problem)
    grid = _weight_grid(info, problem)
    count, size = grid[0], out.numel()
    slots = out if count == 1 else empty(type(out), (count, size), FLOAT32, out.device)
    push = DIRECT_WEIGHT_PUSH.pack(
        *win.kernel[:2], *win.stride[:2], *win.dilation[:2], *win.before[:2],
        *problem.size, *problem.out_size,
        problem.images, problem.groups, problem.channels // problem.groups, filters, ceil_div(filters, block),
        g.offset, x.offset, size,
    )  # fmt: skip
    constants = (
        block, rows, win.kernel[2], win.stride[2], win.dilation[2], win.before[2],
        int(not (problem.out_size[2] | g.offset) % PIXELS), int(_reads_vectors(x, problem)),
        int(problem.volume), _workgroup(info), _exchanged_sums(info, block * rows * win.kernel[2]),
        int(info.type != "software"),  # To processors a loop for short quads costs more than it saves.
    )  # fmt: skip
    run(DIRECT_WEIGHT, grid, push, g, x, slots, constants=constants, flops=problem.flops)
    if count > 1:
        sum_slots(out, slots, size, count, 0)


def _convolve(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, problem: Problem, *, flip: bool
) -> None:
    """With `flip`, `w` are the filters of the convolution whose input's gradient this is."""
    filters, win = problem.filters // problem.groups, problem.win
    block = _filters_per_invocation(filters)
    blocks = ceil_div(filters, block)
    image_size, result_size = problem.channels * problem.in_pixels, problem.filters * problem.out_pixels
    workgroup = _workgroup(out.device.info)
    constants = (
        block, win.kernel[2], win.stride[2], win.dilation[2], win.before[2] & 0xFFFFFFFF,
        int(_reads_vectors(x, problem)), workgroup,
    )  # fmt: skip
    code = DIRECT[out.device.info.short_subgroups]
    for first in range(0, problem.images, MAX_GRID_SIZE):
        count = min(MAX_GRID_SIZE, problem.images - first)
        push = DIRECT_PUSH.pack(
            *win.kernel[:2], *win.stride[:2], *win.dilation[:2], *win.before[:2],
            *problem.size, *problem.out_size,
            problem.channels // problem.groups, filters, blocks,
            x.offset + first * image_size, image_size, *filter_strides(w, problem, flip),
            *bias_constants(bias), first * result_size, result_size,
        )  # fmt: skip
        grid = (ceil_div(_invocations(problem), workgroup), blocks * problem.groups, count)
        operands = (x, w, x if bias is None else bias, out)
        run(code, grid, push, *operands, constants=constants, flops=problem._replace(images=count).flops)


def filter_strides(w: TensorBase, problem: Problem, flip: bool) -> tuple[int, int, int, int, int]:
    """The first element of the filters, and the strides of groups, filters, channels and elements."""
    channels, filters = problem.channels // problem.groups, problem.filters // problem.groups
    elements = problem.kernel_elements
    group = filters * channels * elements
    if flip:
        return w.offset + elements - 1, group, elements, filters * elements, -1
    return w.offset, group, channels * elements, elements, 1


def _filters_per_invocation(filters: int) -> int:
    """The number of a group's filters that one invocation computes."""
    return 16 if filters > 8 else 8 if filters > 4 else 4


def _invocations(problem: Problem) -> int:
    """The number of invocations that compute the pixels of one image."""
    depth, height, width = problem.out_size
    return depth * height * ceil_div(width, PIXELS)


def _row_floats(problem: Problem) -> int:
    """The floats of an image's row that the pixels of one invocation and a row of a filter meet."""
    win = problem.win
    return (PIXELS - 1) * win.stride[2] + (win.kernel[2] - 1) * win.dilation[2] + 1


def _workgroup(info: DeviceInfo) -> int:
    """The invocations of a workgroup."""
    return SOFTWARE_WORKGROUP if info.type == "software" else GPU_WORKGROUP


def _reads_vectors(x: TensorBase, problem: Problem) -> bool:
    """Whether an invocation can read the pixels that its own lie on four at a time, and meets them all."""
    stride, before = problem.win.stride[2], problem.win.before[2]
    reach = _row_floats(problem) - (PIXELS - 1) * stride  # of a row of a filter
    inside = reach >= stride and 0 <= before <= _row_floats(problem) - PIXELS
    return inside and not (problem.size[2] | x.offset) % PIXELS


def _filters_and_rows(info: DeviceInfo, problem: Problem) -> tuple[int, int]:
    """The numbers of filters, and of rows of each, that an invocation of the weight's gradient sums up."""
    most = _filters_per_invocation(problem.filters // problem.groups)
    _, height, width = problem.win.kernel
    if info.type == "software":
        block = min(most, 8)
        return block, height if block * height * width <= MAX_SUMS_OF_ROWS else 1
    choices = (
        (block, rows)
        for block in (16, 8, 4)
        for rows in (height, 1)
        if block <= most and block * rows * width <= MAX_SUMS_OF_ROWS
    )
    # One filter more than any device takes where not even four fit.
    return max(choices, key=lambda choice: choice[0] * choice[1], default=(MAX_SUMS + 1, 1))


def _exchanged_sums(info: DeviceInfo, sums: int) -> int:
    """The number of sums that an invocation of the weight's gradient exchanges with others at a time."""
    if info.type == "software":
        return ceil_div(sums, ceil_div(sums, SOFTWARE_EXCHANGED_SUMS))
    return EXCHANGED_SUMS


def _weight_grid(info: DeviceInfo, problem: Problem) -> tuple[int, int, int]:
    block, rows = _filters_and_rows(info, problem)
    depth, height, _ = problem.win.kernel
    y = problem.groups * ceil_div(problem.filters // problem.groups, block)
    z = problem.channels // problem.groups * depth * (height // rows)
    max_slots = min(BUSY_WORKGROUPS // (y * z), SLOT_BYTES // 4 // (problem.filters * problem.reduction_size))
    rounds = _workgroup(info) * MIN_ROUNDS
    slots = min(max_slots, ceil_div(problem.images * _invocations(problem), rounds))
    return max(1, slots), y, z


ALGORITHM = Algorithm(
    "direct",
    _supports,
    _cost,
    forward,
    input_gradient,
    weight_gradient,
    {
        "forward": tuple(DIRECT.values()),
        "input_gradient": tuple(DIRECT.values()),
        "weight_gradient": (DIRECT_WEIGHT, SUM),
    },
)
