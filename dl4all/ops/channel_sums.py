"""Sums over all elements of each channel on devices: statistics, and the gradients of weights and biases.

Workgroups take slices of channels, or where subgroups are short invocations take rows, as barriers take long
there. What they find of each slice or row is put together by another kernel.
"""

from __future__ import annotations

import math

from dl4all.ops.base import Shape, TensorBase
from dl4all.ops.launch import ceil_div, pack, run, shader, spread
from dl4all.ops.op import empty
from dl4all.ops.rows import STEPS, TOGETHER, RowShaders, of_rows, row_shaders
from dl4all.ops.views import contiguous
from dl4all.scheduler.device import Launch

WORKGROUP = 64
COLUMNS = 32  # channels that a workgroup takes where those lie next to each other
MOST_SLICES = 64
LEAST_SLICE = 2048  # elements that are worth a workgroup
ENOUGH_GROUPS = 512  # workgroups that keep any device busy
LEAST_ROW, MOST_CUTS = 8, 64  # elements of a row, and rows that a channel of one image is cut into
MOST_ROWS = 4096  # of a channel, which an invocation puts together

STATISTICS = {
    (columns, width): shader("norm/statistics.comp", TX=columns, FOURS=width // 4)
    for columns, width in ((1, 1), (COLUMNS, 1), (1, 4))
}
STATISTICS_COMBINE = shader("norm/statistics_combine.comp")
SUMS = {
    (rows, columns, width): shader("norm/sums.comp", ROWS=int(rows), TX=columns, FOURS=width // 4)
    for rows in (False, True)
    for columns, width in ((1, 1), (COLUMNS, 1), (1, 4))
}
SUMS_COMBINE = shader("norm/sums_combine.comp")
ROW_STATISTICS, ROW_SUMS = (row_shaders("norm/channel_rows.comp", (True,), SUMS=sums) for sums in (0, 1))
STATISTICS_SHADERS = (*STATISTICS.values(), STATISTICS_COMBINE, *ROW_STATISTICS.values())
SUMS_SHADERS = {
    rows: (*(code for key, code in SUMS.items() if key[0] == rows), SUMS_COMBINE, *ROW_SUMS.values())
    for rows in (False, True)
}
"""By whether what normalises belongs to rows instead of channels."""


def launch_statistics(out: TensorBase, input: TensorBase) -> None:
    """Fill `out` of shape (2, channels) with mean and variance of the channels of `input`."""
    x = contiguous(input)
    outer, channels, inner = view = _view(x)
    cuts = _cuts(view, x)
    columns, width = COLUMNS if inner == 1 else 1, width_of(inner, x)
    blocks = ceil_div(channels, columns)
    number, size = (outer * cuts, inner // cuts) if cuts else slices(blocks, outer * inner, width)
    partial = out if number == 1 else empty(type(out), (number, 2, channels), out.dtype, out.device)
    if cuts:
        _launch_rows(ROW_STATISTICS, partial, view, cuts, (x,))
    else:
        push = pack(outer, channels, inner // width, size // width, number, x.offset // width)
        run(STATISTICS[columns, width], spread(blocks * number, 1), push, x, partial)
    if number > 1:
        push = pack(outer * inner, channels, size, number)
        run(STATISTICS_COMBINE, spread(channels, WORKGROUP), push, partial, out)


def launch_sums(
    out: TensorBase, g: TensorBase, input: TensorBase, fold: TensorBase, row: int | None = None
) -> None:
    """Fill `out` of shape (2, channels) with sums of `g` and of `g` times the normalised `input`.

    `fold` is of the channels, or of rows of `row` elements.
    """
    g, x = contiguous(g), contiguous(input)
    outer, channels, inner = view = _view(x)
    cuts = _cuts(view, g, x)
    columns, width = COLUMNS if inner == 1 else 1, width_of(inner, g, x)
    blocks = ceil_div(channels, columns)
    number, size = (outer * cuts, inner // cuts) if cuts else slices(blocks, outer * inner, width)
    partial = out if number == 1 else empty(type(out), (number, *out.shape), out.dtype, out.device)
    each, folds = (row or 0) // width, fold.numel() // 2
    if cuts:
        _launch_rows(ROW_SUMS, partial, view, cuts, (x, g), fold, each, folds)
    else:
        push = pack(
            outer, channels, inner // width, size // width, number, max(each, 1), folds,
            g.offset // width, x.offset // width,
        )  # fmt: skip
        code = SUMS[row is not None, columns, width]
        run(code, spread(blocks * number, 1), push, g, x, fold, partial)
    if number > 1:
        run(SUMS_COMBINE, spread(out.numel(), WORKGROUP), pack(out.numel(), number), partial, out)


def slices(groups: int, elements: int, width: int) -> tuple[int, int]:
    """How many workgroups share each of `groups` sums over `elements`, and how many elements each takes, a
    multiple of `width`."""
    wanted = min(ceil_div(ENOUGH_GROUPS, groups), ceil_div(elements, LEAST_SLICE), MOST_SLICES)
    size = max(ceil_div(ceil_div(elements, max(wanted, 1)), width), 1) * width
    return max(ceil_div(elements, size), 1), size


def _view(x: TensorBase) -> Shape:
    """As (outer, channels, inner)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


def width_of(inner: int, *operands: TensorBase) -> int:
    """How many elements of a channel are read at once: 4 where they lie at multiples of that."""
    return 1 if inner % 4 or any(operand.offset % 4 for operand in operands) else 4


def _cuts(view: Shape, *operands: TensorBase) -> int:
    """Into how many rows a channel of one image is cut; 0 where rows are not the way."""
    outer, _, inner = view
    if not outer or inner < LEAST_ROW or not operands[0].device.info.short_subgroups:
        return 0
    width = width_of(inner, *operands)
    longest = STEPS * TOGETHER * width
    found = (n for n in range(1, MOST_CUTS + 1) if inner % (n * width) == 0 and inner // n <= longest)
    cuts = next(found, 0)
    return cuts if outer * cuts <= MOST_ROWS else 0


def _launch_rows(
    shaders: RowShaders,
    partial: TensorBase,
    view: Shape,
    cuts: int,
    operands: tuple[TensorBase, ...],
    fold: TensorBase | None = None,
    each: int = 0,
    folds: int = 0,
) -> None:
    outer, channels, inner = view
    rows = of_rows(shaders, outer * channels * cuts, inner // cuts, 1, *operands)
    offsets = [operand.offset // rows.width for operand in operands]
    push = rows.push + pack(channels, cuts, offsets[0], offsets[-1], each, folds)
    tensors = (*operands, partial) if fold is None else (*operands, fold, partial)
    partial.device.launch(Launch(rows.code, rows.groups, push), *(t.storage for t in tensors))
