"""From collected instructions to a program: numbers and registers, waits, and dispatches that reach enough.

A dispatch reaches few tensors outside. So loads come first, a few in each dispatch, then the instructions,
which only need the arena, then stores; those to tensors that were loaded last share the dispatch of the
instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dl4all.graph.op_codes.assembler import intern_number, number_bits
from dl4all.graph.op_codes.costs import rounds_of
from dl4all.graph.op_codes.emitter import Line, ParameterWord, Source, Transfer, Unsupported
from dl4all.graph.op_codes.instruction import (
    MOST,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    contiguous,
)
from dl4all.graph.op_codes.interpreter import InterpreterVariant
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.validity import end_of
from dl4all.ops.core.kernels.launch import MAX_LOOP_ROUNDS


class ScheduleStep(NamedTuple):
    """An instruction, or a transfer, on its way into a program."""

    name: str
    result: Register
    operands: tuple[Source, ...] = ()
    buffer: int = -1  # of a transfer: number in the graph
    start: int = 0


class ScheduledDispatch(NamedTuple):
    """Instructions from `first` to `last` - 1, and the buffers in the order in which they are bound."""

    first: int
    last: int
    buffers: tuple[int, ...]


def steps_of(
    lines: Iterable[Line], loads: Sequence[Transfer], stores: Sequence[Transfer], reach: int
) -> list[ScheduleStep]:
    """Loads, instructions and stores in their order."""
    stored = {transfer.buffer for transfer in stores}
    ordered = sorted(loads, key=lambda transfer: transfer.buffer in stored)
    recent = list(dict.fromkeys(transfer.buffer for transfer in reversed(ordered)))[:reach]
    late = sorted(stores, key=lambda transfer: transfer.buffer not in recent)
    return [
        *(ScheduleStep("load", t.register, (), t.buffer, t.start) for t in ordered),
        *(ScheduleStep(*line[:3]) for line in lines),
        *(ScheduleStep("store", t.register, (), t.buffer, t.start) for t in late),
    ]


def scheduled(
    steps: Sequence[ScheduleStep], variant: InterpreterVariant
) -> tuple[OpProgram, tuple[ScheduledDispatch, ...]]:
    """A program of the steps, and its dispatches.

    Raises:
        Unsupported: the program is too long.
    """
    registers: dict[Register, int] = {}
    numbers: list[int] = []
    instructions: list[Instruction] = []
    dispatches: list[ScheduledDispatch] = []
    slots: dict[int, int] = {}
    hazards, first, rounds = _Hazards(), 0, 0
    for position, step in enumerate(steps):
        outside = {step.buffer} if step.buffer >= 0 else set()
        first_operand = step.operands[0] if step.operands else None
        a = first_operand if isinstance(first_operand, Register) else None
        more = rounds_of(step.name, step.result, a, variant)
        if len({*slots, *outside}) > variant.buffers or rounds + more > MAX_LOOP_ROUNDS:
            dispatches.append(ScheduledDispatch(first, position, tuple(slots)))
            slots, hazards, first, rounds = {}, _Hazards(), position, 0
        rounds += more
        for number in outside:
            slots.setdefault(number, len(slots))
        wait = hazards.needs_wait(step)
        result = registers.setdefault(step.result, len(registers))
        operands = tuple(_operand(source, registers, numbers) for source in step.operands)
        slot = slots[step.buffer] if outside else 0
        instructions.append(Instruction(step.name, result, operands, slot, step.start, wait))
    dispatches.append(ScheduledDispatch(first, len(steps), tuple(slots)))
    if len(registers) > MOST or len(numbers) > MOST:
        raise Unsupported("has too many tensors for a program")
    return OpProgram(tuple(registers), tuple(numbers), tuple(instructions)), tuple(dispatches)


def _operand(source: Source, registers: dict[Register, int], numbers: list[int]) -> InstructionOperand:
    if isinstance(source, Register):
        return InstructionOperand("register", registers.setdefault(source, len(registers)))
    if isinstance(source, ParameterWord):
        return InstructionOperand("parameter", source.position)
    return InstructionOperand("number", intern_number(number_bits(source), numbers))


# Waits


class _InstructionAccess(NamedTuple):
    """Words that an instruction touches. Word w belongs to invocation w - phase; None: to any."""

    space: int  # -1: the arena; else a buffer outside
    first: int
    end: int
    phase: int | None

    def clashes(self, other: _InstructionAccess) -> bool:
        overlaps = self.space == other.space and self.first < other.end and other.first < self.end
        return overlaps and (self.phase is None or self.phase != other.phase)


class _Hazards:
    """The registers and memory that instructions have touched since the last wait."""

    def __init__(self) -> None:
        self._reads: list[_InstructionAccess] = []
        self._writes: list[_InstructionAccess] = []

    def needs_wait(self, step: ScheduleStep) -> bool:
        """Note an instruction; returns whether it has to wait for those before."""
        reads, writes = _accesses(step)
        clash = any(one.clashes(other) for one in (*reads, *writes) for other in self._writes) or any(
            one.clashes(other) for one in writes for other in self._reads
        )
        if clash:
            self._reads, self._writes = [], []
        self._reads += reads
        self._writes += writes
        return clash


def _accesses(step: ScheduleStep) -> tuple[list[_InstructionAccess], list[_InstructionAccess]]:
    """The reads and writes of an instruction."""
    y = step.result
    elementwise = OPCODES[CODES[step.name]].kind in ("arithmetic", "function", "transfer")
    operands = [source for source in step.operands if isinstance(source, Register)]
    inside = [_access(register, y, elementwise=elementwise) for register in operands]
    result = _access(y, y, elementwise=elementwise)
    outside = _InstructionAccess(step.buffer, step.start, step.start + y.elements, step.start)
    if step.name == "load":
        return [outside], [result]
    if step.name == "store":
        return [result], [outside]
    return inside, [result]


def _access(register: Register, result: Register, *, elementwise: bool) -> _InstructionAccess:
    own = elementwise and register.sizes == result.sizes and register.strides == contiguous(register.sizes)
    return _InstructionAccess(-1, register.offset, end_of(register), register.offset if own else None)
