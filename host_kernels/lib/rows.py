"""Loops over the elements of a row in vectors, with the rest under a mask."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.runtime.cpu.llvm.ir import Code, IrValue, Operand

CHUNK = 16384
"""Elements that a thread computes at a time: some microseconds."""

Step = Callable[[IrValue, IrValue | None], None]


def grain_of(columns: int) -> int:
    """The number of rows of a chunk.

    >>> grain_of(1024), grain_of(10**6)
    (16, 1)
    """
    return max(1, CHUNK // max(columns, 1))


def row_passes(code: Code, columns: IrValue, lanes: int, step: Step, begin: Operand = 0) -> None:
    """Call ``step(i, mask)`` for vectors of a row: without a mask where all lanes count, else with one."""
    first = code.as_value("i64", begin)
    whole = columns - (columns - first) % lanes
    with code.loop(first, whole, lanes) as i:
        step(i, None)
    with code.if_(whole < columns):
        step(whole, code.first_lanes(columns - whole, lanes))


def unrolled_passes(
    code: Code,
    columns: IrValue,
    lanes: int,
    step: Callable[[IrValue, IrValue | None, int], None],
    copies: int,
    begin: Operand = 0,
) -> None:
    """Call ``step(i, mask, copy)`` for vectors of a row of `columns` elements that starts at `begin`.

    Those of different copies follow each other, and may sum in variables of their own.
    """
    start = code.as_value("i64", begin)
    unrolled, whole = columns - columns % (copies * lanes), columns - columns % lanes
    with code.loop(0, unrolled, copies * lanes) as i:
        for copy in range(copies):
            step(start + i + copy * lanes, None, copy)
    if copies > 1:
        with code.loop(unrolled, whole, lanes) as i:
            step(start + i, None, 0)
    with code.if_(whole < columns):
        step(start + whole, code.first_lanes(columns - whole, lanes), 0)
