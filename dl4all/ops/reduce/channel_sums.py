"""Sums over all elements of each channel on devices: statistics, and the gradients of weights and biases.

Workgroups take slices of channels, or where subgroups are short invocations take rows, as barriers take long
there. What they find of each slice or row is put together by another kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dl4all.ops.core.launch import ceil_div, pack, run, shader, strided_grid
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.ops.reduce.row_kernels import STEPS, TOGETHER, RowShaders, of_rows, row_shaders
from dl4all.scheduler.device import Device
from dl4all.scheduler.programs import Launch

WORKGROUP = 64
COLUMNS = 32  # channels that a workgroup takes where those lie next to each other
MOST_SLICES = 64
LEAST_SLICE = 2048  # elements that are worth a workgroup
ENOUGH_GROUPS = 512  # workgroups that keep any device busy
LEAST_ROW, MOST_CUTS = 8, 64  # elements of a row, and rows that a channel of one image is cut into
MOST_ROWS = 4096  # of a channel, which an invocation puts together

STATISTICS = {
    (columns, width): shader("normalization/statistics.comp", COLUMNS=columns, FOURS=width // 4)
    for columns, width in ((1, 1), (COLUMNS, 1), (1, 4))
}
STATISTICS_COMBINE = shader("normalization/statistics_combine.comp")
SUMS = {
    (rows, columns, width): shader(
        "normalization/sums.comp", ROWS=int(rows), COLUMNS=columns, FOURS=width // 4
    )
    for rows in (False, True)
    for columns, width in ((1, 1), (COLUMNS, 1), (1, 4))
}
SUMS_COMBINE = shader("normalization/sums_combine.comp")
ROW_STATISTICS, ROW_SUMS = (
    row_shaders("normalization/channel_rows.comp", (True,), SUMS=sums) for sums in (0, 1)
)
STATISTICS_SHADERS = (*STATISTICS.values(), STATISTICS_COMBINE, *ROW_STATISTICS.values())
SUMS_SHADERS = {
    rows: (*(code for key, code in SUMS.items() if key[0] == rows), SUMS_COMBINE, *ROW_SUMS.values())
    for rows in (False, True)
}
"""By whether what normalises belongs to rows instead of channels."""


class _Parts(NamedTuple):
    """How the elements of channels are shared, in slices or rows, of which each has a place in `partial`."""

    outer: int
    channels: int
    inner: int
    width: int  # elements that are read at once, in which sizes and offsets are counted
    cuts: int  # rows that a channel of one image is cut into; 0 for slices
    columns: int  # channels that a workgroup takes
    number: int  # of slices, or of a channel's rows
    size: int  # elements of each

    @property
    def groups(self) -> int:
        """Workgroups that take slices."""
        return ceil_div(self.channels, self.columns) * self.number


def launch_statistics(out: TensorBase, input: TensorBase) -> None:
    """Fill `out` of shape (2, channels) with mean and variance of the channels of `input`."""
    x = contiguous(input)
    parts = _parts(x)
    partial = _partial(out, parts)
    if parts.cuts:
        _launch_rows(ROW_STATISTICS, parts, (x,), (partial,))
    else:
        push = pack(*_words(parts), x.offset // parts.width)
        run(STATISTICS[parts.columns, parts.width], strided_grid(parts.groups, 1), push, x, partial)
    if partial is not out:
        push = pack(parts.outer * parts.inner, parts.channels, parts.size, parts.number)
        run(STATISTICS_COMBINE, strided_grid(parts.channels, WORKGROUP), push, partial, out)


def launch_sums(
    out: TensorBase, g: TensorBase, input: TensorBase, fold: TensorBase, row: int | None = None
) -> None:
    """Fill `out` of shape (2, channels) with sums of `g` and of `g` times the normalised `input`.

    `fold` is of the channels, or of rows of `row` elements.
    """
    g, x = contiguous(g), contiguous(input)
    parts = _parts(x, g)
    partial, width = _partial(out, parts), parts.width
    each, folds = (row or 0) // width, fold.numel() // 2
    if parts.cuts:
        _launch_rows(ROW_SUMS, parts, (x, g), (fold, partial), each, folds)
    else:
        push = pack(*_words(parts), max(each, 1), folds, g.offset // width, x.offset // width)
        code = SUMS[row is not None, parts.columns, width]
        run(code, strided_grid(parts.groups, 1), push, g, x, fold, partial)
    if partial is not out:
        push = pack(out.numel(), parts.number)
        run(SUMS_COMBINE, strided_grid(out.numel(), WORKGROUP), push, partial, out)


def _parts(*operands: TensorBase) -> _Parts:
    shape = operands[0].shape
    outer, channels, inner = shape[0], shape[1], math.prod(shape[2:])
    width, columns = width_of(inner, *operands), COLUMNS if inner == 1 else 1
    cuts = _cuts(outer, inner, width, operands[0].device)
    number, size = outer * cuts, inner // max(cuts, 1)
    if not cuts:
        number, size = slices(ceil_div(channels, columns), outer * inner, width)
    return _Parts(outer, channels, inner, width, cuts, columns, number, size)


def _partial(out: TensorBase, parts: _Parts) -> TensorBase:
    """Where the numbers of slices or rows go; if there is only one, they are the result."""
    shape = (parts.number, 2, parts.channels)
    return out if parts.number == 1 else empty(type(out), shape, out.dtype, out.device)


def _words(parts: _Parts) -> Shape:
    """What kernels of slices are told."""
    width = parts.width
    return parts.outer, parts.channels, parts.inner // width, parts.size // width, parts.number


def slices(groups: int, elements: int, width: int) -> tuple[int, int]:
    """How many workgroups share each of `groups` sums over `elements`, and how many elements each takes, a
    multiple of `width`."""
    wanted = min(ceil_div(ENOUGH_GROUPS, groups), ceil_div(elements, LEAST_SLICE), MOST_SLICES)
    size = max(ceil_div(ceil_div(elements, max(wanted, 1)), width), 1) * width
    return max(ceil_div(elements, size), 1), size


def width_of(inner: int, *operands: TensorBase) -> int:
    """How many elements of a channel are read at once: 4 where they lie at multiples of that."""
    return 1 if inner % 4 or any(operand.offset % 4 for operand in operands) else 4


def _cuts(outer: int, inner: int, width: int, device: Device) -> int:
    """Into how many rows a channel of one image is cut; 0 where rows are not the way."""
    if not outer or inner < LEAST_ROW or not device.info.short_subgroups:
        return 0
    longest = STEPS * TOGETHER * width
    found = (n for n in range(1, MOST_CUTS + 1) if inner % (n * width) == 0 and inner // n <= longest)
    cuts = next(found, 0)
    return cuts if outer * cuts <= MOST_ROWS else 0


def _launch_rows(
    shaders: RowShaders,
    parts: _Parts,
    operands: Sequence[TensorBase],
    others: Sequence[TensorBase],
    each: int = 0,
    folds: int = 0,
) -> None:
    rows = of_rows(shaders, parts.channels * parts.number, parts.size, 1, *operands)
    offsets = [operand.offset // rows.width for operand in operands]
    push = rows.push + pack(parts.channels, parts.cuts, offsets[0], offsets[-1], each, folds)
    launch = Launch(rows.code, rows.groups, push)
    operands[0].device.launch(launch, *(t.storage for t in (*operands, *others)))
