"""Tiles of dot products of rows: of some of A and some of B, by an instruction that adds up neighbours.

Both matrices have their rows along the sum, so that nothing is packed: vectors of short elements of some rows
of A meet those of some rows of B, and the lanes of each sum are added up at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dl4all.host_kernels.linalg.gemm_rows import lane_sums
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import vector

TILE = 64  # rows, and columns, of C that a thread computes at a time
COLUMNS = 4  # that are multiplied together
PARALLEL_PRODUCTS = 2**19
"""Products of two numbers that a thread computes at a time, at least: some 10 microseconds."""


class DotStep(NamedTuple):
    """An instruction that adds products of neighbouring elements to sums.

    ``add(code, sums, a, b)`` takes vectors of `width` elements, of a type of integers as they lie in memory,
    and of `lanes` sums.
    """

    add: Callable[[Code, IrValue, IrValue, IrValue], IrValue]
    element: str
    width: int
    sums: str
    lanes: int


class RowMatrix(NamedTuple):
    """A matrix whose rows are adjacent elements, `stride` apart; `last` is the number of the last one."""

    address: IrValue
    stride: IrValue
    last: IrValue

    def row(self, code: Code, number: IrValue, element: str) -> IrValue:
        """The address of a row; past the last one it is taken again: its sums are not stored."""
        return code.at(self.address, code.intrinsic("smin", number, self.last) * self.stride, element)


Finish = Callable[[Code, IrValue, IrValue, IrValue, IrValue], None]
"""``finish(code, sums, row, column, mask)`` stores a vector of :data:`COLUMNS` sums of a row of C."""


def rows_together() -> int:
    """The rows of A that are multiplied together: sums take half of the registers."""
    return max(1, provider.processor().registers // 2 // COLUMNS)


def grain_of(m: int, n: int, k: int) -> int:
    """Tiles of C that a thread computes at a time."""
    return max(1, PARALLEL_PRODUCTS // (min(m, TILE) * min(n, TILE) * k))


def tile_count(code: Code, m: IrValue, n: IrValue) -> IrValue:
    """The number of tiles of C."""
    return (m + (TILE - 1)) // TILE * ((n + (TILE - 1)) // TILE)


def steps(code: Code, depth: IrValue, count: int, step: Callable[[IrValue, IrValue | None], None]) -> None:
    """Call ``step(place, mask)`` for vectors of so many elements along the sum."""
    whole = depth - depth % count
    with code.loop(0, whole, count) as place:
        step(place, None)
    with code.if_(whole < depth):
        step(whole, code.first_lanes(depth - whole, count))


def write_tiles(
    module: IrModule,
    how: DotStep,
    operands: Callable[[Code], tuple[RowMatrix, RowMatrix, IrValue]],
    finish: Finish,
    before: Callable[[Code, IrValue], IrValue] | None = None,
    changed: Callable[[IrValue], IrValue] = lambda factor: factor,
) -> Code:
    """Write the part of a kernel that computes tiles of C.

    Args:
        module: gets the part.
        how: the instruction.
        operands: A, B and the depth of the sums, from the slots.
        finish: stores sums.
        before: a vector of COLUMNS sums from a column on, which all rows of a tile begin with; 0 without.
        changed: what becomes of the elements of A.
    """
    most = rows_together()
    kinds = [_write_rows(module, rows, how, operands, finish, changed) for rows in range(1, most + 1)]
    with module.part("multiply") as code:
        slots, begin, end = code.parameters
        a, b, _ = operands(code)
        m, n = a.last + 1, b.last + 1
        across = (n + (TILE - 1)) // TILE
        with code.loop(begin, end) as tile:
            first_row, first_column = tile // across * TILE, tile % across * TILE
            last_row = code.intrinsic("smin", first_row + TILE, m)
            last_column = code.intrinsic("smin", first_column + TILE, n)
            with code.loop(first_column, last_column, COLUMNS) as column:
                none = code.constant(vector(how.sums, COLUMNS), 0)
                start = none if before is None else before(code, column)
                with code.loop(first_row, last_row, most) as row:
                    height = code.intrinsic("smin", last_row - row, code.constant("i64", most))
                    for number, kind in enumerate(kinds, 1):
                        with code.if_(height.equals(number)):
                            code.run(kind, slots, row, column, start)
    return code


def _write_rows(
    module: IrModule,
    rows: int,
    how: DotStep,
    operands: Callable[[Code], tuple[RowMatrix, RowMatrix, IrValue]],
    finish: Finish,
    changed: Callable[[IrValue], IrValue],
) -> Code:
    """The function for so many rows of A from one on, and COLUMNS rows of B."""
    kind, sum_type = vector(how.element, how.width), vector(how.sums, how.lanes)
    with module.function(f"rows{rows}", "ptr", "i64", "i64", vector(how.sums, COLUMNS)) as code:
        _, row, column, start = code.parameters
        a, b, depth = operands(code)
        left = [code.at(a.address, (row + i) * a.stride, how.element) for i in range(rows)]
        right = [b.row(code, column + j, how.element) for j in range(COLUMNS)]
        sums = [[code.variable(sum_type, 0) for _ in right] for _ in left]

        def step(place: IrValue, mask: IrValue | None) -> None:
            factors = [changed(code.load(source, place, kind, mask)) for source in left]
            for j, source in enumerate(right):
                values = code.load(source, place, kind, mask)
                for factor, totals in zip(factors, sums, strict=True):
                    totals[j].value = how.add(code, totals[j].value, factor, values)

        steps(code, depth, how.width, step)
        mask = code.first_lanes(b.last + 1 - column, COLUMNS)
        for i, totals in enumerate(sums):
            result = lane_sums(code, [total.value for total in totals]) + start
            finish(code, result, row + i, column, mask)
    return code
