"""Boxes: what an instruction needs of its operands for a part of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from dl4all.graph.op_codes.emitter import Line
from dl4all.graph.op_codes.instruction import Axes, Register, SlidingWindow, contiguous
from dl4all.graph.op_codes.opcode import CODES, OPCODES

Box: TypeAlias = tuple[tuple[int, int], ...]
"""Start and size on each of four axes."""


def whole(sizes: Axes) -> Box:
    return tuple((0, size) for size in sizes)


def part_of(register: Register, box: Box) -> Register:
    """The elements of a register in a box."""
    offset = register.offset + sum(
        start * stride for (start, _), stride in zip(box, register.strides, strict=True)
    )
    first, second, third, fourth = (size for _, size in box)
    strides = [0 if size == 1 else step for (_, size), step in zip(box, register.strides, strict=True)]
    return Register(offset, (first, second, third, fourth), (strides[0], strides[1], strides[2], strides[3]))


def elements_of(box: Box) -> int:
    return math.prod(size for _, size in box)


class WindowRows(NamedTuple):
    """Rows of an image that some windows see, and the padding that is left in front of them."""

    start: int
    size: int
    padding: int


def rows_of(window: SlidingWindow, height: int, start: int, count: int) -> WindowRows:
    """The rows for the results `start` to `start` + `count` - 1 of an image of so many rows.

    >>> rows_of(SlidingWindow((3, 3), padding=(1, 1)), 10, 0, 2)
    WindowRows(start=0, size=3, padding=1)
    >>> rows_of(SlidingWindow((3, 3), padding=(1, 1)), 10, 4, 6)
    WindowRows(start=3, size=7, padding=0)
    """
    first = start * window.stride[0] - window.padding[0]
    end = min(first + window.extent(0, count), height)
    begin = max(first, 0)
    return WindowRows(begin, end - begin, begin - first)


def axes_of_operand(line: Line, position: int) -> frozenset[int]:
    """The axes of the result along which a part of an operand moves."""
    operand = line.operands[position]
    assert isinstance(operand, Register)
    kind = OPCODES[CODES[line.name]].kind
    own = frozenset(axis for axis, size in enumerate(operand.sizes) if size > 1)
    if kind == "product" and position < 2:
        return (own & {0, 1}) | {2 if position == 0 else 3}
    if line.name == "conv" and position < 2:
        grouped = groups_of(line) > 1
        return frozenset({0, 1, 2} if grouped else {0, 2}) if position == 0 else frozenset({1})
    if kind == "window" and position == 0:
        return frozenset({0, 1, 2})
    if kind == "reduction":
        return own & {0, 1, 2}
    if kind == "rows":
        return frozenset({2})
    return own


def groups_of(line: Line) -> int:
    """The groups of a convolution."""
    image, filters = line.operands[:2]
    assert isinstance(image, Register)
    assert isinstance(filters, Register)
    return image.sizes[1] // filters.sizes[1]


def depth_of(line: Line) -> int:
    """The axis that products sum over: columns of a, or channels of a group; 1 for others."""
    second = line.operands[1] if len(line.operands) > 1 else None
    if not isinstance(second, Register):
        return 1
    if OPCODES[CODES[line.name]].kind == "product":
        return second.sizes[2]
    return second.sizes[1] if line.name == "conv" else 1


def operand_box(line: Line, position: int, box: Box, depth: tuple[int, int] | None = None) -> Box:
    """The box of an operand for a box of the result; `depth` are start and size of what products sum over."""
    operand = line.operands[position]
    assert isinstance(operand, Register)
    sizes, kind = operand.sizes, OPCODES[CODES[line.name]].kind
    usual = tuple((0, 1) if size == 1 else part for size, part in zip(sizes, box, strict=True))
    deep = (0, depth_of(line)) if depth is None else depth
    if kind == "product" and position < 2:
        return (*usual[:2], box[2], deep) if position == 0 else (*usual[:2], deep, box[3])
    if line.name == "conv" and position == 1:
        return (box[1], deep, *whole(sizes)[2:])
    if kind == "window" and position == 0:
        assert line.window is not None
        rows = rows_of(line.window, sizes[2], *box[2])
        channels = box[1]
        if line.name == "conv":
            groups, (first, count) = groups_of(line), box[1]
            filters = line.result.sizes[1] // groups
            group, last = first // filters, (first + count - 1) // filters
            own = sizes[1] // groups
            channels = deep if groups == 1 else (group * own, (last - group + 1) * own)
        return (box[0], channels, (rows.start, rows.size), (0, sizes[3]))
    if kind == "reduction":
        return (*usual[:3], (0, sizes[3]))
    if kind == "rows":
        return ((0, 1), (0, 1), (0, 1), box[2])
    return usual


def most_elements(line: Line, position: int, needed: Box, box: Box) -> int:
    """The most elements that any box as large as `box` needs, where this one needs `needed`.

    The first rows of an image need less than those in the middle, as their windows begin in the padding.
    """
    if line.window is None or position:
        return elements_of(needed)
    image = line.operands[0]
    assert isinstance(image, Register)
    rows = min(line.window.extent(0, box[2][1]), image.sizes[2])
    return elements_of((*needed[:2], (0, rows), needed[3]))


def window_of(line: Line, box: Box) -> SlidingWindow | None:
    """The window of an instruction on a box of its result."""
    if line.window is None:
        return None
    image = line.operands[0]
    assert isinstance(image, Register)
    padding = rows_of(line.window, image.sizes[2], *box[2]).padding
    return line.window._replace(padding=(padding, line.window.padding[1]))


def resplit(line: Line, sizes: Axes) -> Line | None:
    """An elementwise instruction on the same elements with other sizes; None if its axes do not split so.

    >>> from dl4all.graph.op_codes.instruction import register
    >>> flat = Line("relu", register(0, (6,)), (register(6, (6,)),))
    >>> resplit(flat, (1, 1, 2, 3)).operands
    (Register(offset=6, sizes=(1, 1, 2, 3), strides=(0, 0, 3, 1), steps=(0, 0)),)
    """
    if line.result.sizes == sizes:
        return line
    runs = _runs(line.result.sizes, sizes)
    if runs is None:
        return None
    operands = tuple(_split(o, sizes, runs) if isinstance(o, Register) else o for o in line.operands)
    return line._replace(result=_split(line.result, sizes, runs), operands=operands)


def _runs(sizes: Axes, wanted: Axes) -> list[list[int]] | None:
    """For each axis the axes of `wanted` whose product it is."""
    rest = [axis for axis in range(4) if wanted[axis] > 1]
    runs: list[list[int]] = []
    for size in sizes:
        run: list[int] = []
        while size > 1:
            if not rest or size % wanted[rest[0]]:
                return None
            size //= wanted[rest[0]]
            run.append(rest.pop(0))
        runs.append(run)
    return None if rest else runs


def _split(register: Register, sizes: Axes, runs: Sequence[Sequence[int]]) -> Register:
    own, strides = [1, 1, 1, 1], [0, 0, 0, 0]
    for size, stride, run in zip(register.sizes, register.strides, runs, strict=True):
        step = stride
        for axis in reversed(run if size > 1 else ()):
            own[axis], strides[axis] = sizes[axis], step
            step *= sizes[axis]
    return Register(
        register.offset, (own[0], own[1], own[2], own[3]), (strides[0], strides[1], strides[2], strides[3])
    )


def scratch(offset: int, box: Box) -> Register:
    """A contiguous register with the sizes of a box."""
    first, second, third, fourth = (size for _, size in box)
    sizes = (first, second, third, fourth)
    return Register(offset, sizes, contiguous(sizes))
