"""Convolution straight from the image on devices, without a matrix of unrolled windows.

Two ways: *direct*, where an invocation computes some neighbouring pixels of several filters from what it
reads itself, which suits few channels, and *implicit*, the matrix product of im2col whose second operand is
read from the image as the product needs it (implicit GEMM; Chetlur et al., 2014), which suits GPUs. With
stride 1 the gradient of the input is a convolution with turned filters; that of the filters has a direct
kernel of its own.
"""

from __future__ import annotations

from dl4all.ops.conv.filter_cache import add_up
from dl4all.ops.conv.problem import Problem
from dl4all.ops.core.launch import MAX_GRID_SIZE, MAX_LOOP_ROUNDS, ceil_div, pack, shader
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.programs import Launch

DIRECT = {subgroups: shader("conv/direct.comp", SUBGROUPS=int(subgroups)) for subgroups in (False, True)}
DIRECT_WEIGHT = shader("conv/direct_weight.comp")
IMPLICIT = shader("conv/implicit_gemm.comp")
FORWARD_SHADERS = (*DIRECT.values(), IMPLICIT)
WEIGHT_SHADERS = (DIRECT_WEIGHT,)

WORKGROUP = 32
FOUR = 4  # pixels of an invocation
ROWS, COLUMNS, DEPTH = 64, 64, 8  # of a workgroup of implicit.comp
LONGEST = 64  # floats of an image's row in registers
MOST_SUMS = 128  # of an invocation, that fit the shared memory of every device
FEW_SUMS = 80  # that may take several rows of the filters
BUSY = 1024  # workgroups that keep a large GPU busy
LEAST_ROUNDS = 8  # that make the end of a workgroup worth its while
SLOT_BYTES = 2**25  # of weights' gradients that are summed side by side


def block(filters: int) -> int:
    """Of so many filters in a group, those of one invocation."""
    return 16 if filters > 8 else 8 if filters > 4 else 4


def fours(q: Problem) -> int:
    """Invocations for an image's pixels."""
    depth, height, width = q.out_size
    return depth * height * ceil_div(width, FOUR)


def span(q: Problem) -> int:
    """Floats of a row that four pixels and a row of a filter meet."""
    return (FOUR - 1) * q.win.stride[2] + (q.win.kernel[2] - 1) * q.win.dilation[2] + 1


def can_direct(q: Problem) -> bool:
    """Whether :func:`direct` fits every device."""
    filters = q.filters // q.groups
    depth, height, _ = q.win.kernel
    return (
        not q.empty
        and span(q) <= LONGEST
        and q.groups * ceil_div(filters, block(filters)) <= MAX_GRID_SIZE
        and ceil_div(fours(q), WORKGROUP) <= MAX_GRID_SIZE
        and q.channels // q.groups * depth * height <= MAX_LOOP_ROUNDS
    )


def can_direct_weight(q: Problem) -> bool:
    """Whether :func:`direct_weight` fits every device."""
    if q.empty or span(q) > LONGEST or sums(q)[0] * q.win.kernel[2] > MOST_SUMS:
        return False
    groups = _grid_of_sums(q)
    rounds = ceil_div(q.images * fours(q), groups[0] * WORKGROUP)
    return max(groups) <= MAX_GRID_SIZE and rounds + MOST_SUMS <= MAX_LOOP_ROUNDS


def can_implicit(q: Problem) -> bool:
    """Whether :func:`implicit` fits every device."""
    return (
        not q.empty
        and max(_implicit_grid(q)) <= MAX_GRID_SIZE
        and ceil_div(q.inner, DEPTH) <= MAX_LOOP_ROUNDS
    )


def direct(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, q: Problem, turn: bool = False
) -> None:
    """Fill `out` with the convolution of contiguous tensors.

    Args:
        turn: `w` are the filters of the convolution whose input's gradient this is.
    """
    filters, win = q.filters // q.groups, q.win
    some = block(filters)
    blocks = ceil_div(filters, some)
    image, result = q.channels * q.plane, q.filters * q.pixels
    before, width = win.before[2], q.size[2]
    by_four = win.stride[2] == 1 and 0 <= before <= span(q) - FOUR and not (width | x.offset) % FOUR
    constants = (some, win.kernel[2], win.stride[2], win.dilation[2], before & 0xFFFFFFFF, int(by_four))
    code = DIRECT[out.device.info.short_subgroups]
    for first in range(0, q.images, MAX_GRID_SIZE):
        count = min(MAX_GRID_SIZE, q.images - first)
        push = pack(
            *win.kernel[:2], *win.stride[:2], *win.dilation[:2], *win.before[:2], *q.size, *q.out_size,
            q.channels // q.groups, filters, blocks,
            x.offset + first * image, image, *_places(w, q, turn),
            *_start(bias), first * result, result,
        )  # fmt: skip
        groups = (ceil_div(fours(q), WORKGROUP), blocks * q.groups, count)
        _launch(Launch(code, groups, push, constants, flops=_flops(q, count)), x, w, bias, out)


def implicit(
    out: TensorBase, x: TensorBase, w: TensorBase, bias: TensorBase | None, q: Problem, turn: bool = False
) -> None:
    """The same by way of shared memory."""
    win = q.win
    push = pack(
        *win.stride, *win.dilation, *win.before, *q.size, *q.out_size,
        q.images, q.channels // q.groups, q.filters // q.groups,
        x.offset, q.channels * q.plane, *_places(w, q, turn),
        *_start(bias), q.filters * q.pixels,
    )  # fmt: skip
    launch = Launch(IMPLICIT, _implicit_grid(q), push, win.kernel, flops=_flops(q, q.images))
    _launch(launch, x, w, bias, out)


def direct_weight(out: TensorBase, g: TensorBase, x: TensorBase, q: Problem) -> None:
    """Fill `out`, of the weight's shape, from the gradient `g` of the output and the input.

    The order of all additions follows from the sizes.
    """
    win, filters = q.win, q.filters // q.groups
    some, rows = sums(q)
    groups = _grid_of_sums(q)
    count, size = groups[0], out.numel()
    slots = out if count == 1 else empty(type(out), (count, size), out.dtype, out.device)
    by_four = not (q.out_size[2] | g.offset) % FOUR
    push = pack(
        *win.kernel[:2], *win.stride[:2], *win.dilation[:2], *win.before, *q.size, *q.out_size,
        q.images, q.groups, q.channels // q.groups, filters, ceil_div(filters, some),
        g.offset, x.offset, size,
    )  # fmt: skip
    constants = (some, rows, win.kernel[2], win.stride[2], win.dilation[2], int(by_four))
    launch = Launch(DIRECT_WEIGHT, groups, push, constants, flops=_flops(q, q.images))
    out.device.launch(launch, g.storage, x.storage, slots.storage)
    if count > 1:
        add_up(out, slots, size, count, 0)


def _places(w: TensorBase, q: Problem, turn: bool) -> tuple[int, int, int, int, int]:
    """Where filters lie: the first element, and the distance of groups, filters, channels and elements."""
    channels, filters = q.channels // q.groups, q.filters // q.groups
    group = filters * channels * q.taps
    if turn:
        return w.offset + q.taps - 1, group, q.taps, filters * q.taps, -1
    return w.offset, group, channels * q.taps, q.taps, 1


def _start(bias: TensorBase | None) -> tuple[int, int]:
    return (0, 0) if bias is None else (1, bias.offset)


def _flops(q: Problem, images: int) -> int:
    return 2 * images * q.filters * q.pixels * q.inner


def _launch(launch: Launch, x: TensorBase, w: TensorBase, bias: TensorBase | None, out: TensorBase) -> None:
    operands = (x, w, x if bias is None else bias, out)
    out.device.launch(launch, *(tensor.storage for tensor in operands))


def _implicit_grid(q: Problem) -> tuple[int, int, int]:
    return ceil_div(q.images * q.pixels, COLUMNS), ceil_div(q.filters // q.groups, ROWS), q.groups


def sums(q: Problem) -> tuple[int, int]:
    """Filters, and rows of each, that an invocation of the weight's gradient sums up."""
    some = min(block(q.filters // q.groups), 8)
    _, height, width = q.win.kernel
    return some, height if some * height * width <= FEW_SUMS else 1


def _grid_of_sums(q: Problem) -> tuple[int, int, int]:
    some, rows = sums(q)
    depth, height, _ = q.win.kernel
    y = q.groups * ceil_div(q.filters // q.groups, some)
    z = q.channels // q.groups * depth * (height // rows)
    most = min(BUSY // (y * z), SLOT_BYTES // 4 // (q.filters * q.inner))
    return max(1, min(most, ceil_div(q.images * fours(q), WORKGROUP * LEAST_ROUNDS))), y, z
