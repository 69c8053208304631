"""Copies between layouts, with conversion of the elements, and fills.

Axes are sorted by the target's strides. The innermost one is gone along in vectors where the elements of the
source lie side by side, too, or are one element; where they do along another axis, squares of a vector's
size are transposed in registers. Everything else is read and written element by element. A unit of work is a
block of rows and columns for an index of the other axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dl4all.host_kernels.lib.elements import FLOAT8_FORMATS, converted, converted_type, in_memory
from dl4all.host_kernels.lib.rows import CHUNK
from dl4all.host_kernels.lib.transposition import transposed
from dl4all.ops.core.kernels.host_kernel import ArrayLayout, HostLaunch, host_kernel
from dl4all.ops.core.kernels.launch import NoKernel
from dl4all.ops.core.strides import basic, merge_axes
from dl4all.ops.core.tensor_base import Shape
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector

OUTER_AXES = 4  # but for rows and columns
WIDE = 4  # vectors that are copied side by side
TILE_BLOCK = 64  # rows and columns of a unit that is transposed
RAW_TYPES = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
"""The types of elements that are moved as they are, by their bytes."""

ROWS, ONE, TILES, STRIDED, FILL, FILL_STRIDED = "rows", "one", "tiles", "strided", "fill", "fill strided"
"""The ways to copy columns: see :func:`_mode`."""


class Axes(NamedTuple):
    """Sizes, and strides of source and target, of some axes."""

    sizes: Shape
    source: Shape
    target: Shape

    def moved(self, axis: int, to: int) -> Axes:
        """The same with an axis at another place."""
        order = [i for i in range(len(self.sizes)) if i != axis]
        order.insert(to, axis)
        return Axes(*(tuple(group[i] for i in order) for group in self))


@host_kernel("copy")
def prepare_copy(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`copy_launch`.
    """
    return copy_launch(writes[0], reads[0])


@host_kernel("cast")
def prepare_cast(out: ArrayLayout, x: ArrayLayout, dtype: str) -> HostLaunch:
    """
    Raises:
        NoKernel: see :func:`copy_launch`.
    """
    return copy_launch(out, x)


@host_kernel("fill")
def prepare_fill(reads: Sequence[ArrayLayout], writes: Sequence[ArrayLayout]) -> HostLaunch:
    """The launch of a fill with the bits of an element, which are its number.

    Raises:
        NoKernel: there are too many axes.
    """
    target = writes[0]
    axes = _axes(target.shape, (0,) * len(target.shape), target.strides)
    mode = FILL if axes.target[-1] == 1 else FILL_STRIDED
    raw = RAW_TYPES[target.dtype.itemsize]
    constants = _constants(axes, mode)
    return HostLaunch(
        copy, (mode, raw, raw), 1, [*constants, 0], work=target.numel(), numbers=(len(constants),)
    )


def copy_launch(target: ArrayLayout, source: ArrayLayout) -> HostLaunch:
    """The launch of a copy; the slots are the addresses of source and target.

    Raises:
        NoKernel: there are too many axes, or no such conversion.
    """
    if source.dtype == target.dtype:
        read = written = RAW_TYPES[source.dtype.itemsize]
    else:
        read, written = converted_type(source.dtype), converted_type(target.dtype)
        if read == "double" and written in ("half", *FLOAT8_FORMATS):
            raise NoKernel("to round twice, by way of float32, would round wrongly")
    axes = _axes(target.shape, source.strides, target.strides)
    axes, mode = _mode(axes)
    return HostLaunch(copy, (mode, read, written), 2, _constants(axes, mode), work=math.prod(axes.sizes))


def _axes(shape: Shape, source: Shape, target: Shape) -> Axes:
    """The axes by the target's strides, the smallest last; there are at least two.

    Raises:
        NoKernel: there are no elements, or too many axes.
    """
    if 0 in shape:
        raise NoKernel("no elements")
    order = sorted(range(len(shape)), key=lambda axis: (-abs(target[axis]), -abs(source[axis])))
    sizes, strides = merge_axes(
        tuple(shape[i] for i in order), [tuple(group[i] for i in order) for group in (source, target)]
    )
    if 0 in strides[1]:
        raise NoKernel("elements of the target share memory")
    missing = 2 - len(sizes)
    if missing > 0:
        last = (0,) * (missing - 1) + ((0,) if sizes else (1,))
        return Axes((1,) * missing + sizes, *(last + group for group in strides))
    if len(sizes) > OUTER_AXES + 2:
        raise NoKernel("too many axes")
    return Axes(sizes, *strides)


def _mode(axes: Axes) -> tuple[Axes, str]:
    """The way to copy columns, and the axes with that of rows next to last."""
    if axes.target[-1] != 1:
        return axes, STRIDED
    if axes.source[-1] in (0, 1):
        return axes, ROWS if axes.source[-1] else ONE
    for axis in reversed(range(len(axes.sizes) - 1)):
        if axes.source[axis] == 1:
            return axes.moved(axis, len(axes.sizes) - 2), TILES
    return axes, STRIDED


(
    UNIT_COUNT, GRAIN, ROW_BLOCK, ROW_BLOCKS, COLUMN_BLOCK, COLUMN_BLOCKS,
    ROW_COUNT, ROW_SOURCE, ROW_TARGET, COLUMN_COUNT, COLUMN_SOURCE, COLUMN_TARGET,
) = range(12)  # fmt: skip
OUTER = 12
NUMBER = OUTER + 3 * OUTER_AXES


def _constants(axes: Axes, mode: str) -> list[int]:
    *outer, rows, columns = axes.sizes
    if mode == TILES:
        row_block = column_block = TILE_BLOCK
    else:
        column_block = min(columns, CHUNK)
        row_block = min(rows, max(1, CHUNK // column_block))
    blocks = -(-rows // row_block), -(-columns // column_block)
    missing = OUTER_AXES - len(outer)
    inner = [value for axis in (-2, -1) for value in (axes.sizes[axis], axes.source[axis], axes.target[axis])]
    return [
        math.prod(outer) * blocks[0] * blocks[1],
        max(1, CHUNK // (row_block * column_block)),
        row_block, blocks[0], column_block, blocks[1],
        *inner,
        *(1,) * missing, *outer,
        *(0,) * missing, *axes.source[:-2],
        *(0,) * missing, *axes.target[:-2],
    ]  # fmt: skip


def copy(mode: str, source: str, target: str) -> IrModule:
    """Slots: source but for fills, target, the constants of a launch, the bits of an element for fills.

    Args:
        mode: how columns are copied.
        source, target: types of the elements, of :data:`dl4all.host_kernels.lib.elements.MEMORY_TYPES`.
    """
    module = IrModule()
    first = 1 if mode in (FILL, FILL_STRIDED) else 2
    with module.part("units") as code:
        _Blocks(code, mode, source, target, first - 1, first).write()
        units = code
    with module.kernel("copy") as code:
        code.parallel(units, code.parameters[0], code.slot(first + UNIT_COUNT), code.slot(first + GRAIN))
    return module


@host_kernel("index_backward")
def prepare_index_backward(out: ArrayLayout, x: ArrayLayout, key: Any, shape: Shape) -> HostLaunch:
    """The launch that fills the result with zeros, and copies into the part that a key selects.

    Raises:
        NoKernel: see :func:`copy_launch`.
    """
    part, strides, offset = basic(key, out.shape, out.strides, 0)
    axes, mode = _mode(_axes(part, x.strides, strides))
    whole = _axes(out.shape, (0,) * len(out.shape), out.strides)
    element = RAW_TYPES[out.dtype.itemsize]
    constants = [*_constants(axes, mode), *_constants(whole, FILL), 0, offset]
    return HostLaunch(copy_into_zeros, (mode, element), 2, constants, work=out.numel())


def copy_into_zeros(mode: str, element: str) -> IrModule:
    """Slots: source, target, the constants of the copy, those of the fill, 0, where the copy's target begins.

    Args:
        mode: how columns are copied.
        element: the type.
    """
    copied = 2
    filled = copied + NUMBER
    module = IrModule()
    with module.part("zeros") as code:
        _Blocks(code, FILL, element, element, 1, filled).write()
        zeros = code
    with module.part("units") as code:
        _Blocks(code, mode, element, element, 1, copied).write(code.slot(filled + NUMBER + 1))
        units = code
    with module.kernel("copy_into_zeros") as code:
        for part, first in ((zeros, filled), (units, copied)):
            code.parallel(part, code.parameters[0], code.slot(first + UNIT_COUNT), code.slot(first + GRAIN))
    return module


class _Blocks:
    """Writes the part that copies units."""

    def __init__(self, code: Code, mode: str, source: str, target: str, out: int, first: int) -> None:
        """
        Args:
            code: of the part.
            mode, source, target: as of :func:`copy`.
            out: the target's slot; that of the source is the first one.
            first: the slot of the first constant.
        """
        self.code = code
        self.mode = mode
        self.source, self.target = source, target
        self.first = first
        self.x, self.out = code.slot(0, "ptr"), code.slot(out, "ptr")
        self.lanes = provider.processor().lanes(max(SIZES[in_memory(type)] for type in (source, target)))
        if mode in (FILL, FILL_STRIDED):
            self.element = code.convert(code.slot(first + NUMBER), target)

    def constant(self, place: int) -> IrValue:
        return self.code.slot(self.first + place)

    def write(self, start: IrValue | int = 0) -> None:
        """`start` is the place of the target's first element."""
        code = self.code
        _, begin, end = code.parameters
        with code.loop(begin, end) as unit:
            blocks = self.constant(COLUMN_BLOCKS)
            column_block, rest = unit % blocks, unit // blocks
            blocks = self.constant(ROW_BLOCKS)
            row_block, rest = rest % blocks, rest // blocks
            source, target = code.as_value("i64", 0), code.as_value("i64", start)
            for axis in reversed(range(OUTER_AXES)):
                size = self.constant(OUTER + axis)
                index = rest if axis == 0 else rest % size
                source = source + index * self.constant(OUTER + OUTER_AXES + axis)
                target = target + index * self.constant(OUTER + 2 * OUTER_AXES + axis)
                if axis:
                    rest = rest // size
            rows = self._range(row_block, ROW_BLOCK, ROW_COUNT)
            columns = self._range(column_block, COLUMN_BLOCK, COLUMN_COUNT)
            if self.mode == TILES:
                self._write_tiles(source, target, rows, columns)
            else:
                with code.loop(*rows) as row:
                    x, out = row * self.constant(ROW_SOURCE), row * self.constant(ROW_TARGET)
                    self._write_row(source + x, target + out, columns)

    def _range(self, block: IrValue, size: int, count: int) -> tuple[IrValue, IrValue]:
        begin = block * self.constant(size)
        return begin, self.code.intrinsic("smin", begin + self.constant(size), self.constant(count))

    def _element(self, index: IrValue, lanes: int = 1, mask: IrValue | None = None) -> IrValue:
        x = self.code.load(self.x, index, vector(in_memory(self.source), lanes), mask)
        return converted(self.code, x, self.source, self.target)

    def _write_row(self, source: IrValue, target: IrValue, columns: tuple[IrValue, IrValue]) -> None:
        code, lanes = self.code, self.lanes
        begin, end = columns
        if self.mode in (STRIDED, FILL_STRIDED):
            with code.loop(begin, end) as i:
                if self.mode == FILL_STRIDED:
                    x = self.element
                else:
                    x = self._element(source + i * self.constant(COLUMN_SOURCE))
                code.store(x, self.out, target + i * self.constant(COLUMN_TARGET))
            return
        one = None
        if self.mode != ROWS:
            one = code.splat(self.element if self.mode == FILL else self._element(source), lanes)

        def step(i: IrValue, mask: IrValue | None) -> None:
            code.store(one or self._element(source + i, lanes, mask), self.out, target + i, mask)

        count = end - begin
        whole, vectors = begin + (count - count % (WIDE * lanes)), begin + (count - count % lanes)
        with code.loop(begin, whole, WIDE * lanes) as i:
            for j in range(WIDE):
                step(i + j * lanes, None)
        with code.loop(whole, vectors, lanes) as i:
            step(i, None)
        with code.if_(vectors < end):
            step(vectors, code.first_lanes(end - vectors, lanes))

    def _write_tiles(
        self,
        source: IrValue,
        target: IrValue,
        rows: tuple[IrValue, IrValue],
        columns: tuple[IrValue, IrValue],
    ) -> None:
        """Copy a block whose source has adjacent elements along the rows' axis."""
        code, lanes = self.code, self.lanes
        (top, bottom), (left, right) = rows, columns
        across, down = self.constant(COLUMN_SOURCE), self.constant(ROW_TARGET)
        whole_rows, whole_columns = bottom - (bottom - top) % lanes, right - (right - left) % lanes
        with code.loop(top, whole_rows, lanes) as row, code.loop(left, whole_columns, lanes) as column:
            tile = [self._element(source + (column + i) * across + row, lanes) for i in range(lanes)]
            for i, line in enumerate(transposed(code, tile)):
                code.store(line, self.out, target + (row + i) * down + column)

        def singly(rows: tuple[IrValue, IrValue], columns: tuple[IrValue, IrValue]) -> None:
            with code.loop(*rows) as row, code.loop(*columns) as column:
                code.store(
                    self._element(source + column * across + row), self.out, target + row * down + column
                )

        singly((top, whole_rows), (whole_columns, right))
        singly((whole_rows, bottom), (left, right))
