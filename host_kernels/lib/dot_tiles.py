"""Tiles of sums of products in registers: what compiled convolutions spend their time in.

A tile has some rows, each of some vectors. To each row i it adds a[i, k] b[k] over all k, where a[i, k] is a
number and b[k] has as many vectors as a row. k has three axes, with strides of their own in a and b, so that
a may be filters as they lie in memory, and b columns of an image.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dl4all.host_kernels.lib.library import NAME, shared
from dl4all.host_kernels.lib.rows import row_passes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue, Operand
from dl4all.runtime.cpu.llvm.ir_types import SIZES, vector

MOST_VECTORS = 6
FEW_COLUMNS = 4
"""Of b, up to which sums are added up along k, a vector of it at a time, rather than most lanes wasted."""


class DotTile(NamedTuple):
    """The registers of a tile: rows of vectors of an LLVM type of floats."""

    rows: int
    vectors: int
    element: str

    @property
    def lanes(self) -> int:
        """Of a vector."""
        return vector_lanes(self.element)

    @property
    def columns(self) -> int:
        """Of a row."""
        return self.vectors * self.lanes

    @property
    def widths(self) -> list[int]:
        """The vectors of tiles for the last columns, and of this one."""
        return sorted({self.vectors, *(width for width in (1, 2, 4) if width < self.vectors)})


class Axis(NamedTuple):
    """An axis of k: its extent, and how far its elements are apart in a and b."""

    extent: Operand
    a: Operand
    b: Operand


class Sums(NamedTuple):
    """The target of the sums of a tile."""

    place: IrValue  # of the first
    row: Operand  # distance of the rows
    adds: Operand  # whether to add to what is there


def vector_lanes(element: str) -> int:
    """The lanes of this processor's vectors."""
    return provider.processor().lanes(SIZES[element])


def tile_for(rows: int, element: str) -> DotTile:
    """The tile for sums of so many rows: most registers are used, and few rows beyond the last computed.

    Beside the sums, a row b[k] and a number of a are in registers.
    """
    registers = provider.processor().registers - 1
    most = 8 if registers > 16 else 4

    def cost(height: int) -> float:
        return -(-rows // height) * height * (1 + 0.25 / height)

    height = min(range(most, 0, -1), key=cost)
    return DotTile(height, min(MOST_VECTORS, registers // (height + 1)), element)


PARAMETERS = ("ptr", "ptr", "ptr", *("i64",) * 13)
"""a, b, sums; distance of a's rows; extent, a's and b's strides of three axes; distance of rows of sums;
columns; whether to add."""


def tile_function(module: IrModule, tile: DotTile) -> Code:
    """Writes a function that computes a tile: see :data:`PARAMETERS`."""
    lanes = tile.lanes
    type = vector(tile.element, lanes)
    with module.function(NAME, *PARAMETERS, exported=True) as code:
        a, b, out, a_row, *numbers, out_row, columns, adds = code.parameters
        axes = [Axis(*numbers[i : i + 3]) for i in (0, 3, 6)]
        memory = code.local(tile.element, tile.rows * tile.columns)
        sums = [[code.variable(type, 0.0) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        offsets = [a_row * row for row in range(tile.rows)]
        with code.if_(adds.equals(0)):
            for number in range(tile.rows):
                for v in range(tile.vectors):
                    code.prefetch(out, out_row * number + v * lanes, tile.element, writes=True)
        with _nest(code, axes, a, b, tile.element) as (a_k, b_k):
            values = [code.load(b_k, v * lanes, type) for v in range(tile.vectors)]
            for row, offset in zip(sums, offsets, strict=True):
                factor = code.splat(code.load(a_k, offset, tile.element), lanes)
                for total, value in zip(row, values, strict=True):
                    total.value = code.intrinsic("fmuladd", factor, value, total.value)
        for number, row in enumerate(sums):
            for v, total in enumerate(row):
                code.store(total.value, memory, number * tile.columns + v * lanes)
        with code.loop(0, tile.rows) as i, code.loop(0, tile.columns, lanes) as column:
            total = code.variable(type, code.load(memory, i * tile.columns + column, type))
            place = code.at(out, out_row * i + column, tile.element)
            whole = column + lanes <= columns
            for condition, is_whole in ((whole, True), (~whole, False)):
                with code.if_(condition):
                    mask = None if is_whole else code.first_lanes(columns - column, lanes)
                    with code.if_(adds.differs(0)):
                        total.value = code.load(place, 0, type, mask) + total.value
                    code.store(total.value, place, 0, mask)
        return code


DOT_PARAMETERS = ("ptr", "ptr", "ptr", *("i64",) * 4)
"""a, b, sums; distance of a's rows, extent of k, distance of rows of sums, whether to add."""


def dots_function(module: IrModule, rows: int, element: str) -> Code:
    """Writes a function that computes a column of sums, of neighbours along k: see :data:`DOT_PARAMETERS`."""
    lanes = vector_lanes(element)
    type = vector(element, lanes)
    with module.function(NAME, *DOT_PARAMETERS, exported=True) as code:
        a, b, out, a_row, extent, out_row, adds = code.parameters
        sums = [code.variable(type, 0.0) for _ in range(rows)]

        def step(k: IrValue, mask: IrValue | None) -> None:
            value = code.load(b, k, type, mask)
            for row, total in enumerate(sums):
                factor = code.load(a, a_row * row + k, type, mask)
                total.value = code.intrinsic("fmuladd", factor, value, total.value)

        row_passes(code, extent, lanes, step)
        for row, total in enumerate(sums):
            before = code.variable(element, 0.0)
            with code.if_(adds.differs(0)):
                before.value = code.load(out, out_row * row, element)
            code.store(before.value + code.sum_of(total.value), out, out_row * row)
        return code


class Tiles:
    """The functions that compute tiles with up to so many rows and vectors."""

    def __init__(self, tile: DotTile, rest: int) -> None:
        """
        Args:
            tile: the largest.
            rest: rows of tiles behind the last whole one; 0 for none.
        """
        self.tile = tile
        self.rest = rest
        self._functions = {
            (rows, width): shared(tile_function, tile._replace(rows=rows, vectors=width))
            for rows in {tile.rows, rest} - {0}
            for width in tile.widths
        }
        self._dots = {rows: shared(dots_function, rows, tile.element) for rows in {tile.rows, rest} - {0}}

    def run(
        self,
        code: Code,
        a: IrValue,
        a_row: Operand,
        b: IrValue,
        axes: Sequence[Axis],
        rows: IrValue,
        columns: IrValue,
        sums: Sums,
        between: Callable[[IrValue], None] | None = None,
        column: IrValue | None = None,
    ) -> None:
        """Compute all rows of up to the tile's columns, one tile after the other.

        Args:
            code: is written to.
            a: address of a[0, 0].
            a_row: distance of a's rows.
            b: address of b[0].
            axes: three, of k.
            rows: a multiple of the tile's rows, or that and the rest.
            columns: at least 1.
            sums: of the first row.
            between: writes what happens before the tiles from a row on.
            column: memory for as many elements as there are k, where the last axis may be all of k: columns
                are copied there if they are few, and a's elements adjacent.
        """
        if column is None:
            self._run_tiles(code, a, a_row, b, axes, rows, columns, sums, between)
            return
        last, ones = axes[2], (axes[0].extent, axes[1].extent, axes[2].a)
        few = columns <= FEW_COLUMNS
        for one in ones:
            few = few & code.as_value("i64", one).equals(1)
        with code.if_(few), code.loop(0, columns) as j:
            self._run_dots(code, a, a_row, code.at(b, j, self.tile.element), last, rows, sums, j, column)
        with code.if_(~few):
            self._run_tiles(code, a, a_row, b, axes, rows, columns, sums, between)

    def _run_dots(
        self,
        code: Code,
        a: IrValue,
        a_row: Operand,
        b: IrValue,
        axis: Axis,
        rows: IrValue,
        sums: Sums,
        j: IrValue,
        column: IrValue,
    ) -> None:
        element = self.tile.element
        with code.loop(0, axis.extent) as k:
            code.store(code.load(b, k * axis.b, element), column, k)
        whole = rows - rows % self.tile.rows

        def dots(height: int, row: IrValue) -> None:
            place = code.at(sums.place, row * sums.row + j, element)
            self._dots[height].run(
                code, code.at(a, row * a_row, element), column, place, a_row, axis.extent, sums.row, sums.adds
            )

        with code.loop(0, whole, self.tile.rows) as row:
            dots(self.tile.rows, row)
        if self.rest:
            with code.if_(whole < rows):
                dots(self.rest, whole)

    def _run_tiles(
        self,
        code: Code,
        a: IrValue,
        a_row: Operand,
        b: IrValue,
        axes: Sequence[Axis],
        rows: IrValue,
        columns: IrValue,
        sums: Sums,
        between: Callable[[IrValue], None] | None,
    ) -> None:
        strides = [number for axis in axes for number in axis]
        element, lanes = self.tile.element, self.tile.lanes
        limits = [0, *self.tile.widths]

        def tiles(height: int, width: int, row: IrValue) -> None:
            self._functions[height, width].run(
                code, code.at(a, row * a_row, element), b, code.at(sums.place, row * sums.row, element),
                a_row, *strides, sums.row, columns, sums.adds,
            )  # fmt: skip

        for less, width in zip(limits, self.tile.widths, strict=False):
            fits = (columns > less * lanes) & (columns <= width * lanes)
            with code.if_(fits):
                whole = rows - rows % self.tile.rows
                with code.loop(0, whole, self.tile.rows) as row:
                    if between is not None:
                        between(row)
                    tiles(self.tile.rows, width, row)
                if self.rest:
                    with code.if_(whole < rows):
                        tiles(self.rest, width, whole)


@contextlib.contextmanager
def _nest(
    code: Code, axes: Sequence[Axis], a: IrValue, b: IrValue, element: str
) -> Iterator[tuple[IrValue, IrValue]]:
    """Loops over axes, with the addresses that they come to in a and b."""
    if not axes:
        yield a, b
        return
    axis = axes[0]
    with code.loop(0, axis.extent) as k:
        inner = code.at(a, k * axis.a, element), code.at(b, k * axis.b, element)
        with _nest(code, axes[1:], *inner, element) as found:
            yield found
