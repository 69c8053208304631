"""Instructions that repeat, as loops: tiles differ only in where their registers begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.assembler import intern_number, number_bits
from dl4all.graph.op_codes.emitter import Line
from dl4all.graph.op_codes.instruction import (
    COUNTERS,
    MOST,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    Scratchpad,
    SlidingWindow,
)

LEAST = 3
"""Iterations that are worth a loop."""
PERIODS = range(1, 13)
"""Numbers of tiles that a loop's body may have: tiles take turns between places, and have several parts."""


@dataclass(frozen=True)
class Repeated:
    """`count` iterations of a body, in which a counter moves the registers."""

    counter: int
    count: int
    body: tuple[Item, ...]


Item: TypeAlias = Line | Repeated


class _Tile(NamedTuple):
    """Instructions of a tile: a number that is the same for all of the same form, and where they begin."""

    items: Sequence[Item]
    form: int
    offsets: tuple[int, ...]


def rolled(tiles: Sequence[Sequence[Item]], counter: int = COUNTERS - 1) -> list[list[Item]]:
    """Tiles, or rows of them, with loops in place of those that repeat; the outer loops, too."""
    forms: dict[tuple[object, ...], int] = {}
    read = [
        _Tile(items, forms.setdefault(_shape(items), len(forms)), tuple(_offsets(items))) for items in tiles
    ]
    found: list[list[Item]] = []
    position = 0
    while position < len(read):
        period, count = max(
            ((one, _repeats(read, position, one)) for one in PERIODS),
            key=lambda pair: (pair[0] * pair[1] if pair[1] >= LEAST else 0, -pair[0]),
        )
        if count < LEAST:
            found.append(list(read[position].items))
            position += 1
            continue
        body = [item for tile in read[position : position + period] for item in tile.items]
        steps = _steps(read, position, position + period, period)
        found.append([Repeated(counter, count, tuple(_moving(body, iter(steps), counter)))])
        position += period * count
    return rolled(found, counter - 1) if counter and len(found) < len(tiles) else found


def _repeats(tiles: Sequence[_Tile], first: int, period: int) -> int:
    """The number of times that `period` tiles stand there, with offsets that grow by the same steps."""
    forms = [tile.form for tile in tiles[first : first + period]]
    steps: list[int] | None = None
    count, start = 1, first + period
    while [tile.form for tile in tiles[start : start + period]] == forms:
        found = _steps(tiles, start - period, start, period)
        if any(step < 0 for step in found) or (steps is not None and found != steps):
            break
        steps, count, start = found, count + 1, start + period
    return count


def _steps(tiles: Sequence[_Tile], before: int, after: int, period: int) -> list[int]:
    """The growth of each offset from one iteration to the next."""
    return [
        new - old
        for one, other in zip(tiles[before : before + period], tiles[after : after + period], strict=True)
        for old, new in zip(one.offsets, other.offsets, strict=True)
    ]


def _shape(items: Iterable[Item]) -> tuple[object, ...]:
    """All that is the same in every iteration: everything but offsets."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Repeated):
            found.append((item.counter, item.count, _shape(item.body)))
        else:
            operands = (one[1:] if isinstance(one, Register) else one for one in item.operands)
            found.append((item.name, item.result[1:], *operands, item.window))
    return tuple(found)


def _offsets(items: Iterable[Item]) -> list[int]:
    found: list[int] = []
    for item in items:
        if isinstance(item, Repeated):
            found += _offsets(item.body)
        else:
            found += [one.offset for one in (item.result, *item.operands) if isinstance(one, Register)]
    return found


def _moving(items: Iterable[Item], steps: Iterable[int], counter: int) -> list[Item]:
    """Instructions whose registers move by these steps with a counter."""
    rest = iter(steps)

    def moving(register: Register) -> Register:
        own = list(register.steps)
        own[counter] = next(rest)
        return register._replace(steps=(own[0], own[1]))

    found: list[Item] = []
    for item in items:
        if isinstance(item, Repeated):
            found.append(Repeated(item.counter, item.count, tuple(_moving(item.body, rest, counter))))
        else:
            result = moving(item.result)
            operands = tuple(moving(one) if isinstance(one, Register) else one for one in item.operands)
            found.append(item._replace(result=result, operands=operands))
    return found


@dataclass
class ProgramBuilder:
    """Instructions with numbers for their registers, and the op that each is a part of."""

    registers: dict[Register, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    windows: dict[SlidingWindow, int] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)

    def add(self, items: Iterable[Item]) -> None:
        """Append instructions and loops."""
        for item in items:
            if isinstance(item, Repeated):
                self._append(Instruction("loop", item.counter, immediate=item.count), "")
                self.add(item.body)
                self._append(Instruction("end", item.counter), "")
            else:
                operands = tuple(map(self._operand, item.operands))
                result = self.registers.setdefault(item.result, len(self.registers))
                window = 0
                if item.window is not None:
                    window = self.windows.setdefault(item.window, len(self.windows))
                self._append(Instruction(item.name, result, operands, immediate=window), item.op)

    def jump(self, condition: Register | float) -> int:
        """Append a jump, whose target is not known yet; returns its number for :meth:`land`."""
        self._append(Instruction("jump", 0, (self._operand(condition),)), "")
        return len(self.instructions) - 1

    def land(self, jump: int, target: int | None = None) -> None:
        """Let a jump lead to an instruction: the next one unless another is named."""
        there = len(self.instructions) if target is None else target
        self.instructions[jump] = self.instructions[jump]._replace(immediate=there)

    def _append(self, instruction: Instruction, op: str) -> None:
        self.instructions.append(instruction)
        self.ops.append(op)

    def _operand(self, source: object) -> InstructionOperand:
        if isinstance(source, Register):
            return InstructionOperand("register", self.registers.setdefault(source, len(self.registers)))
        assert isinstance(source, float | int)
        return InstructionOperand("number", intern_number(number_bits(source), self.numbers))

    def program(self, scratchpad: Scratchpad) -> OpProgram:
        """
        Raises:
            ArgumentError: the program needs too many registers.
        """
        if len(self.registers) > MOST or len(self.numbers) > MOST:
            raise ArgumentError(
                f"[accelerator] the program needs {len(self.registers)} registers, and there are {MOST}; "
                "a larger scratchpad makes fewer tiles"
            )
        return OpProgram(
            tuple(self.registers),
            tuple(self.numbers),
            tuple(self.instructions),
            tuple(self.windows),
            scratchpad,
        )
