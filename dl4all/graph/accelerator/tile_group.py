"""Groups of instructions that are computed tile by tile, and the operands that they read from DRAM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from dl4all.graph.accelerator.boxes import Box, axes_of_operand
from dl4all.graph.op_codes.emitter import Line
from dl4all.graph.op_codes.instruction import Axes, Register
from dl4all.graph.op_codes.opcode import CODES, ELEMENTWISE, OPCODES


class Stream(NamedTuple):
    """An operand that a group reads from DRAM: of this instruction, at this position."""

    line: int
    position: int


StreamKey: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class TileGroup:
    """Instructions that run tile by tile, and which of their results others need."""

    lines: tuple[Line, ...]
    stored: frozenset[int]

    @property
    def sizes(self) -> Axes:
        """The sizes that are cut into tiles: those of the first result."""
        return self.lines[0].result.sizes

    @property
    def columns_are_cut(self) -> bool:
        """Whether the last axis may be cut: no instruction needs a whole row, or makes another one."""
        head, *rest = self.lines
        kind = OPCODES[CODES[head.name]].kind
        return (kind in ELEMENTWISE or head.name == "matmul") and all(
            OPCODES[CODES[line.name]].kind in ELEMENTWISE and line.result.sizes == head.result.sizes
            for line in rest
        )

    def streams(self) -> list[Stream]:
        """The operands that come from DRAM; the same register counts once where its tiles are the same."""
        made = set[Register]()
        found: dict[StreamKey, Stream] = {}
        for number, line in enumerate(self.lines):
            for position, operand in enumerate(line.operands):
                if isinstance(operand, Register) and operand not in made and not is_table(line, position):
                    found.setdefault(self.key_of(number, position), Stream(number, position))
            made.add(line.result)
        return list(found.values())

    def key_of(self, number: int, position: int) -> StreamKey:
        """Operands of the same key have the same tiles."""
        line = self.lines[number]
        whole_rows = OPCODES[CODES[line.name]].kind in (*ELEMENTWISE, "reduction")
        moves = axes_of_operand(line, position)
        return line.operands[position], moves, whole_rows or (number, position)

    def box_of(self, number: int, tile: Box) -> Box:
        """The box of an instruction's result for a tile: its last axis may be another one."""
        sizes = self.lines[number].result.sizes
        box = tuple((0, 1) if size == 1 else part for size, part in zip(sizes, tile, strict=True))
        return box if self.columns_are_cut or number == 0 else (*box[:3], (0, sizes[3]))


def is_table(line: Line, position: int) -> bool:
    """Whether an operand stays in DRAM, where the DMA picks rows from it."""
    return line.name == "take_rows" and position == 0
