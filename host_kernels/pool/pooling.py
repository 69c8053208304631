"""Common parts of the kernels of max and average pooling: integers, spans of windows, strided rows.

A chunk is some planes (images of one channel). It has a row of scratch memory with the padding at both ends,
and enough behind it for vectors that end outside, so that only rows of the image are read under masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dl4all.host_kernels.lib.lines import LineSlots
from dl4all.host_kernels.lib.rows import grain_of, row_passes
from dl4all.ops.core.kernels.host_kernel import ArrayLayout
from dl4all.ops.pool.windows import Pooling
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

MOST_PARTS = 64
"""Chunks, each with scratch memory of its own."""

MOST_STRIDE = 2
"""Strides of columns up to which elements are picked from adjacent vectors."""

INTEGERS = (
    "planes", "grain", "height", "width", "out_height", "out_width", "rows", "columns", "row_stride",
    "column_stride", "row_padding", "column_padding", "row_step", "column_step", "row_length", "part_size",
)  # fmt: skip


class PoolPlan(NamedTuple):
    """The numbers of a launch."""

    integers: tuple[int, ...]  # of INTEGERS
    scratch: int  # bytes
    stride: int  # of columns, 0 for one that vectors do not pick; -1 for adaptive windows


def plan_of(pooling: Pooling, planes: int, band: bool, extra: int = 0) -> PoolPlan:
    """The plan of a launch.

    Args:
        pooling: the windows.
        planes: images of one channel.
        band: whether a chunk holds all rows of a window at once.
        extra: further rows of scratch memory.
    """
    lanes = provider.processor().lanes()
    (height, width), (out_height, out_width), win = pooling.size, pooling.out_size, pooling.win
    kernel, stride, padding, step = (
        ((1, 1), (1, 1), (0, 0), (1, 1))
        if win is None
        else (win.kernel, win.stride, win.before, win.dilation)
    )
    whole = -(-out_width // lanes) * lanes
    reach = (whole - 1) * stride[1] + (kernel[1] - 1) * step[1] + 1
    row_length = max(reach, padding[1] + width, whole) + 2 * lanes
    size = row_length * ((kernel[0] if band else 1) + extra)
    grain = max(grain_of(height * width), -(-planes // MOST_PARTS))
    integers = (
        planes, grain, height, width, out_height, out_width, *kernel, *stride, *padding, *step,
        row_length, size,
    )  # fmt: skip
    picked = stride[1] if stride[1] <= MOST_STRIDE else 0
    return PoolPlan(integers, 4 * size * -(-planes // grain), -1 if win is None else picked)


def planes_of(layout: ArrayLayout) -> int:
    """The number of images of one channel."""
    return layout.shape[0] * layout.shape[1]


class WindowSpan(NamedTuple):
    """The elements of a window along one axis that are in the image."""

    origin: IrValue  # place of its first element, padding or not
    first: IrValue  # number of the first one in the image
    end: IrValue


def row_span(code: Code, slots: LineSlots, number: IrValue, adaptive: bool) -> WindowSpan:
    """The rows of a window."""
    return _span(
        code,
        slots,
        number,
        adaptive,
        ("height", "out_height", "rows", "row_stride", "row_padding", "row_step"),
    )


def column_span(code: Code, slots: LineSlots, number: IrValue, adaptive: bool) -> WindowSpan:
    """The columns of a window."""
    names = ("width", "out_width", "columns", "column_stride", "column_padding", "column_step")
    return _span(code, slots, number, adaptive, names)


def _span(code: Code, slots: LineSlots, number: IrValue, adaptive: bool, names: Sequence[str]) -> WindowSpan:
    size, count, kernel, stride, padding, step = (slots[name] for name in names)
    zero = code.constant("i64", 0)
    if adaptive:
        origin = number * size // count
        end = ((number + 1) * size + (count - 1)) // count
        return WindowSpan(origin, zero, end - origin)
    origin = number * stride - padding
    before = code.intrinsic("smax", (step - 1 - origin) // step, zero)
    within = code.intrinsic("smax", (size - origin + (step - 1)) // step, zero)
    return WindowSpan(origin, before, code.intrinsic("smin", kernel, within))


def picked(code: Code, row: IrValue, place: IrValue, stride: int, slots: LineSlots) -> IrValue:
    """Elements of a row of the scratch memory from a place on, as far apart as windows are."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    if stride == 1:
        return code.load(row, place, type)
    if stride == 2:
        first, second = code.load(row, place, type), code.load(row, place + lanes, type)
        return code.shuffle(first, second, range(0, 2 * lanes, 2))
    numbers = code.lane_numbers("i64", lanes) * slots["column_stride"] + place
    return code.gather(row, numbers, type, code.constant(vector("i1", lanes), 1))


def fill(code: Code, target: IrValue, count: IrValue, number: float) -> None:
    """Write a number to all elements of an array."""
    lanes = provider.processor().lanes()
    value = code.constant(vector("float", lanes), number)
    row_passes(code, count, lanes, lambda i, mask: code.store(value, target, i, mask))


def part_memory(code: Code, slots: LineSlots, begin: IrValue) -> IrValue:
    """The scratch memory of the chunk that begins at a plane."""
    return code.at(slots["scratch"], begin // slots["grain"] * slots["part_size"], "float")
