"""Transposition of square blocks in registers."""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import lanes_of


def transposed(code: Code, rows: Sequence[IrValue]) -> list[IrValue]:
    """The columns of a block: as many vectors as one has lanes, a power of two.

    Each round deals out the first and the second half of the rows like cards.
    """
    lanes = lanes_of(rows[0].type)
    half = lanes // 2
    low = [n // 2 + n % 2 * lanes for n in range(lanes)]
    high = [half + n for n in low]
    values = list(rows)
    for _ in range(lanes.bit_length() - 1):
        pairs = list(zip(values[:half], values[half:], strict=True))
        values = [code.shuffle(a, b, order) for a, b in pairs for order in (low, high)]
    return values
