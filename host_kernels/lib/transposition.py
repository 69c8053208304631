"""Transposition of square blocks in registers."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.runtime.cpu.llvm.ir import Code, IrValue


def transposed(code: Code, rows: Sequence[IrValue]) -> list[IrValue]:
    """The columns of a square block of vectors, whose lanes are a power of two.

    Each step swaps, in pairs of rows that are `distance` apart, the blocks of that size off the diagonal.
    """
    rows = list(rows)
    lanes = len(rows)
    distance = lanes // 2
    while distance:
        upper = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        lower = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        for i in range(lanes):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = code.shuffle(a, b, upper), code.shuffle(a, b, lower)
        distance //= 2
    return rows
