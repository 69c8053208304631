"""Per-channel reductions on devices: mean and variance, and the sums in the gradients of normalization.

Each workgroup reduces a slice of some channels. Where subgroups are short, invocations reduce rows instead,
as barriers take long there. A second kernel combines the partial results of the slices or rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dl4all.ops.core.dtypes import FLOAT32
from dl4all.ops.core.kernels.launch import ceil_div, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.ops.reduce import row_kernels
from dl4all.ops.reduce.row_kernels import (
    MAX_STEPS_PER_INVOCATION,
    ROW_PUSH,
    SHUFFLE,
    SUBGROUP_SIZE,
    RowShaders,
    row_launch,
    row_shaders,
)
from dl4all.scheduler.device.device import Device

WORKGROUP = 64
TILE_CHANNELS = 32  # channels of a workgroup where neighbouring channels are adjacent in memory
MAX_SLICES = 64
MIN_SLICE_ELEMENTS = 2048  # fewer are not worth a workgroup
BUSY_WORKGROUPS = 512  # that keep any device busy
MIN_ROW_ELEMENTS = 8
MAX_ROWS_PER_PLANE = 64  # a plane is one channel of one image
MAX_ROWS_PER_CHANNEL = 4096  # which one invocation combines

# Channels of a workgroup, elements that are read at once, and whether subgroups add up.
SUM_VARIANTS = (
    (1, 1, False), (1, 4, False), (1, 1, True), (1, 4, True), (TILE_CHANNELS, 1, False),
)  # fmt: skip
CHANNEL_ROWS_PUSH = PushBlock(
    "normalization/channel_rows.comp",
    f"{ROW_PUSH} uint channels, cuts, x_offset, g_offset, fold_elements, folds;",
)
STATISTICS_PUSH = PushBlock(
    "normalization/statistics.comp",
    "uint outer, groups, inner, slice, slices, x_offset;",
)
STATISTICS_COMBINE_PUSH = PushBlock(
    "normalization/statistics_combine.comp",
    "uint elements, groups, slice, slices;",
)
SUMS_PUSH = PushBlock(
    "normalization/sums.comp",
    "uint outer, channels, inner, slice, slices, row, rows, g_offset, x_offset;",
)
SUMS_COMBINE_PUSH = PushBlock("normalization/sums_combine.comp", "uint n, slices;")
STATISTICS = {
    (tile, width, arithmetic): shader(
        "normalization/statistics.comp", COLUMNS=tile, FOURS=width // 4, ARITHMETIC=int(arithmetic)
    )
    for tile, width, arithmetic in SUM_VARIANTS
}
STATISTICS_COMBINE = shader("normalization/statistics_combine.comp")
SUMS = {
    (rows, tile, width, arithmetic): shader(
        "normalization/sums.comp",
        ROWS=int(rows),
        COLUMNS=tile,
        FOURS=width // 4,
        ARITHMETIC=int(arithmetic),
    )
    for rows in (False, True)
    for tile, width, arithmetic in SUM_VARIANTS
}
SUMS_COMBINE = shader("normalization/sums_combine.comp")
ROW_STATISTICS, ROW_SUMS = (
    row_shaders("normalization/channel_rows.comp", (SHUFFLE,), SUMS=sums) for sums in (0, 1)
)
STATISTICS_SHADERS = (*STATISTICS.values(), STATISTICS_COMBINE, *ROW_STATISTICS.values())
SUMS_SHADERS = {
    rows: (*(code for key, code in SUMS.items() if key[0] == rows), SUMS_COMBINE, *ROW_SUMS.values())
    for rows in (False, True)
}
"""By whether rows instead of channels are normalised."""


class _Partition(NamedTuple):
    """The division of the elements of channels into slices or rows."""

    outer: int
    channels: int
    inner: int
    width: int  # elements that are read at once; sizes and offsets count these
    plane_rows: int  # rows of one channel of one image; 0 for slices
    tile: int  # channels of a workgroup
    parts: int  # slices or rows of a channel
    size: int  # elements of a slice or row

    @property
    def groups(self) -> int:
        """The number of workgroups for slices."""
        return ceil_div(self.channels, self.tile) * self.parts

    def variant(self, device: Device) -> tuple[int, int, bool]:
        """The key of the kernels for slices, in SUM_VARIANTS."""
        return self.tile, self.width, self.tile == 1 and row_kernels.adds_in_subgroups(device)

    @property
    def push(self) -> Shape:
        """The first push constants of the kernels for slices."""
        width = self.width
        return self.outer, self.channels, self.inner // width, self.size // width, self.parts


def launch_statistics(out: TensorBase, input: TensorBase) -> None:
    """Fill `out` of shape (2, channels) with mean and variance of the channels of `input`."""
    x = contiguous(input)
    p = _partition(x)
    partial = _partial_results(out, p)
    if p.plane_rows:
        _run_rows(ROW_STATISTICS, p, (x,), (partial,))
    else:
        push = STATISTICS_PUSH.pack(*p.push, x.offset // p.width)
        run(STATISTICS[p.variant(out.device)], strided_grid(p.groups, 1), push, x, partial)
    if partial is not out:
        push = STATISTICS_COMBINE_PUSH.pack(
            elements=p.outer * p.inner, groups=p.channels, slice=p.size, slices=p.parts
        )
        run(STATISTICS_COMBINE, strided_grid(p.channels, WORKGROUP), push, partial, out)


def launch_sums(
    out: TensorBase, g: TensorBase, input: TensorBase, fold: TensorBase, row: int | None = None
) -> None:
    """Fill `out` of shape (2, channels) with sums of `g` and of `g` times the normalised `input`.

    `fold` holds the mean and 1 / deviation of each channel, or of each row of `row` elements.
    """
    g, x = contiguous(g), contiguous(input)
    p = _partition(x, g)
    partial, width = _partial_results(out, p), p.width
    row_size, folds = (row or 0) // width, fold.numel() // 2
    if p.plane_rows:
        _run_rows(ROW_SUMS, p, (x, g), (fold, partial), row_size, folds)
    else:
        push = SUMS_PUSH.pack(*p.push, max(row_size, 1), folds, g.offset // width, x.offset // width)
        code = SUMS[(row is not None, *p.variant(out.device))]
        run(code, strided_grid(p.groups, 1), push, g, x, fold, partial)
    if partial is not out:
        push = SUMS_COMBINE_PUSH.pack(n=out.numel(), slices=p.parts)
        run(SUMS_COMBINE, strided_grid(out.numel(), WORKGROUP), push, partial, out)


def _partition(*operands: TensorBase) -> _Partition:
    shape = operands[0].shape
    outer, channels, inner = shape[0], shape[1], math.prod(shape[2:])
    width, tile = vector_width(inner, *operands), TILE_CHANNELS if inner == 1 else 1
    plane_rows = _plane_rows(outer, inner, width, operands[0].device)
    parts, size = outer * plane_rows, inner // max(plane_rows, 1)
    if not plane_rows:
        parts, size = _slices(ceil_div(channels, tile), outer * inner, width)
    return _Partition(outer, channels, inner, width, plane_rows, tile, parts, size)


def _partial_results(out: TensorBase, p: _Partition) -> TensorBase:
    """The tensor for the results of slices or rows: `out` itself if there is only one."""
    shape = (p.parts, 2, p.channels)
    return out if p.parts == 1 else empty(type(out), shape, FLOAT32, out.device)


def _slices(groups: int, elements: int, width: int) -> tuple[int, int]:
    """The number of slices that each of `groups` sums over `elements` is cut into, and their size, a multiple
    of `width`."""
    slices = min(ceil_div(BUSY_WORKGROUPS, groups), ceil_div(elements, MIN_SLICE_ELEMENTS), MAX_SLICES)
    size = max(ceil_div(ceil_div(elements, max(slices, 1)), width), 1) * width
    return max(ceil_div(elements, size), 1), size


def vector_width(inner: int, *operands: TensorBase) -> int:
    """The number of elements of a channel that are read at once: 4 where they are aligned."""
    return 1 if inner % 4 or any(operand.offset % 4 for operand in operands) else 4


def _plane_rows(outer: int, inner: int, width: int, device: Device) -> int:
    """The number of rows that one channel of one image is cut into; 0 where slices are faster."""
    if not outer or inner < MIN_ROW_ELEMENTS or not device.info.short_subgroups:
        return 0
    longest = MAX_STEPS_PER_INVOCATION * SUBGROUP_SIZE * width
    counts = range(1, MAX_ROWS_PER_PLANE + 1)
    rows = next((n for n in counts if inner % (n * width) == 0 and inner // n <= longest), 0)
    return rows if outer * rows <= MAX_ROWS_PER_CHANNEL else 0


def _run_rows(
    shaders: RowShaders,
    p: _Partition,
    inputs: Sequence[TensorBase],
    others: Sequence[TensorBase],
    row_size: int = 0,
    folds: int = 0,
) -> None:
    rows = row_launch(shaders, p.channels * p.parts, p.size, 1, *inputs)
    offsets = [tensor.offset // rows.width for tensor in inputs]
    push = CHANNEL_ROWS_PUSH.after(
        rows.push,
        channels=p.channels,
        cuts=p.plane_rows,
        x_offset=offsets[0],
        g_offset=offsets[-1],
        fold_elements=row_size,
        folds=folds,
    )
    run(rows.code, rows.groups, push, *inputs, *others)
