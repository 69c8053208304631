"""Dot products of the rows of two matrices: matrix products of few rows whose B lies in columns.

Nothing is copied: a layer's weights are read once. Vectors run along the sums, and the lanes of several sums
are added together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.host_kernels.lib.elements import in_memory, loaded, number_of, stored
from dl4all.host_kernels.linalg.gemm_tiles import tile_sizes
from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrModule, IrValue
from dl4all.runtime.cpu.llvm.ir_types import SIZES, lanes_of, vector

MAX_ROWS = 4  # of A that are multiplied together
BLOCK = 4096
"""Products after which the lanes of sums are added up: each lane sums few of them."""

ROWS_TYPES = ("ptr", "i64", "ptr", "i64", "ptr", "i64", "i64", "i64", "i64", "ptr", "i64", "i64")
"""A, distance of its rows, B, distance of its columns, C, distances of its rows and columns, depth, columns,
the bias of columns, whether there is one, rows."""


def columns_together(rows: int, element: str = "float") -> int:
    """The columns of B that are multiplied together with so many rows of A: a power of two."""
    lanes = tile_sizes(number_of(element)).lanes
    sums = 3 * provider.processor().registers // 4
    columns = lanes
    while columns > 1 and columns * min(rows, MAX_ROWS) > sums:
        columns //= 2
    return columns


def lane_sums(code: Code, values: Sequence[IrValue]) -> IrValue:
    """A vector of the sums of the lanes of vectors, each added by halves; their number is a power of two."""
    parts = list(values)
    lanes = lanes_of(parts[0].type)
    length = lanes  # of the neighbouring lanes that belong to one sum
    while length > 1:
        half = length // 2
        pairs = list(zip(parts[::2], parts[1::2], strict=True)) if len(parts) > 1 else [(parts[0], None)]
        parts = []
        for first, second in pairs:
            starts = range(0, lanes_of(first.type) * (1 if second is None else 2), length)
            low = [start + i for start in starts for i in range(half)]
            other = first if second is None else second
            parts.append(
                code.shuffle(first, other, low) + code.shuffle(first, other, [i + half for i in low])
            )
        length = half
    return parts[0]


def gemm_rows(element: str = "float", right: str = "") -> IrModule:
    """The module of a function of :data:`ROWS_TYPES`; A's columns, and B's rows, are adjacent.

    `element` is the memory type of all matrices but B, whose is `right` if that is given; those of 16 and of
    8 bits are multiplied and added up as floats.
    """
    module, word, right = IrModule(), in_memory(element), right or element
    kinds = [_write_rows(module, rows, element, right) for rows in range(1, MAX_ROWS + 1)]
    with module.shared("gemm_rows", *ROWS_TYPES) as code:
        a, a_row, b, b_column, c, c_row, c_column, depth, columns, bias, biased, rows = code.parameters
        parts = (rows + (MAX_ROWS - 1)) // MAX_ROWS
        least, larger = rows // parts, rows % parts
        row = code.variable("i64", 0)
        with code.loop(0, parts) as part:
            height = code.select(part < larger, least + 1, least)
            a_place = code.at(a, row.value * a_row, word)
            c_place = code.at(c, row.value * c_row, word)
            for number, kind in enumerate(kinds):
                together = columns_together(number + 1, element)
                with code.if_(height.equals(number + 1)), code.loop(0, columns, together) as j:
                    code.run(
                        kind, a_place, a_row, code.at(b, j * b_column, in_memory(right)), b_column,
                        code.at(c_place, j * c_column, word), c_row, c_column, depth,
                        code.intrinsic("smin", columns - j, code.constant("i64", together)),
                        code.at(bias, j, word), biased,
                    )  # fmt: skip
            row.value = row.value + height
    return module


def _write_rows(module: IrModule, rows: int, element: str, of_right: str) -> Code:
    """The function for so many rows of A, and up to :func:`columns_together` columns of B."""
    number, word = number_of(element), in_memory(element)
    lanes = provider.processor().lanes(SIZES[number])
    type = vector(number, lanes)
    together = columns_together(rows, element)
    with module.function(f"rows{rows}", *ROWS_TYPES[:-1]) as code:
        a, a_row, b, b_column, c, c_row, c_column, depth, columns, bias, biased = code.parameters
        left = [code.at(a, a_row * i, word) for i in range(rows)]
        # Past the last column it is taken again: what comes of it is not stored.
        right = [
            code.at(
                b,
                code.intrinsic("smin", columns - 1, code.constant("i64", j)) * b_column,
                in_memory(of_right),
            )
            for j in range(together)
        ]
        mask = code.first_lanes(columns, together)
        kept = vector(number, together)
        totals = [code.variable(kept, 0.0) for _ in range(rows)]
        with code.loop(0, depth, BLOCK) as first:
            end = code.intrinsic("smin", first + BLOCK, depth)
            whole = end - (end - first) % lanes
            sums = [[code.variable(type, 0.0) for _ in range(together)] for _ in range(rows)]

            def step(k: IrValue, lane_mask: IrValue | None) -> None:
                factors = [loaded(code, place, k, element, type, lane_mask) for place in left]
                for j, place in enumerate(right):
                    value = loaded(code, place, k, of_right, type, lane_mask)
                    for i, factor in enumerate(factors):
                        total = sums[i][j]
                        total.value = code.intrinsic("fmuladd", factor, value, total.value)

            with code.loop(first, whole, lanes) as k:
                step(k, None)
            with code.if_(whole < end):
                step(whole, code.first_lanes(end - whole, lanes))
            for total, row in zip(totals, sums, strict=True):
                total.value = total.value + lane_sums(code, [one.value for one in row])
        with code.if_(biased.differs(0)):
            added = loaded(code, bias, 0, element, kept, mask)
            for total in totals:
                total.value = total.value + added
        adjacent = c_column.equals(1)
        local = code.local(number, together)
        for i, total in enumerate(totals):
            place = code.at(c, c_row * i, word)
            with code.if_(adjacent):
                stored(code, total.value, place, 0, element, mask)
            with code.if_(~adjacent):
                code.store(total.value, local, 0)
                with code.loop(0, columns) as j:
                    stored(code, code.load(local, j, number), place, j * c_column, element)
    return code
