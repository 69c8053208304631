"""A program on the clock: when each instruction runs in its unit, and what that costs.

Each unit takes its instructions in their order. One waits until its unit is free, and for those before it
whose words it needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.model import (
    LATENCY,
    UNITS,
    Hardware,
    Unit,
    array_cycles,
    array_work,
    dma_bytes,
    unit_of,
    vector_cycles,
)
from dl4all.graph.op_codes.instruction import Instruction, InstructionOperand, OpProgram, Register
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.simulator import executed
from dl4all.graph.op_codes.validity import end_of, registers_of

SCRATCHPAD_GRAIN = 16
DRAM_GRAIN = 256
"""Words that the model tells apart in each memory."""


class InstructionCost(NamedTuple):
    """The unit of an instruction, its cycles there, and what it moves and computes."""

    unit: Unit
    cycles: int
    dram_bytes: int
    scratchpad_words: int
    multiply_adds: int
    vector_elements: int


class TimedInstruction(NamedTuple):
    """An instruction that has run: its position in the program, its cost, and its first and last cycle."""

    position: int
    cost: InstructionCost
    start: int
    end: int


class Phase(NamedTuple):
    """The instructions of an op in a unit that follow each other: first and last cycle, and the busy ones."""

    unit: Unit
    op: str
    start: int
    end: int
    busy: int


def cost_of(program: OpProgram, instruction: Instruction, hardware: Hardware) -> InstructionCost:
    """The cost of an instruction that is no jump or loop."""
    result = program.registers[instruction.result]
    operands = [program.registers[o.position] for o in instruction.operands if o.kind == "register"]
    window = program.windows[instruction.immediate] if program.windows else None
    border = program.scratchpad.start
    crosses = result.offset < border or any(one.offset < border for one in operands)
    unit = unit_of(instruction.name, crosses=crosses)
    words = sum(one.elements for one in (result, *operands))
    if unit == "dma":
        outer = result if result.offset < border or instruction.name == "take_rows" else operands[0]
        moved = dma_bytes(outer)
        return InstructionCost(unit, math.ceil(moved / hardware.dram_bytes_per_cycle), moved, words, 0, 0)
    work = array_work(instruction.name, result.sizes, operands, window)
    if work is not None:
        cycles = array_cycles(work, hardware.array, hardware.dataflow)
        return InstructionCost(unit, cycles, 0, words, work.multiply_adds, 0)
    cycles = vector_cycles(instruction.name, result.sizes, operands, window, hardware.lanes)
    return InstructionCost(unit, cycles, 0, words, 0, cycles * hardware.lanes)


def timed(program: OpProgram, hardware: Hardware, jumps: Iterable[bool]) -> Iterator[TimedInstruction]:
    """Every instruction that runs, in order.

    Args:
        program: checked.
        hardware: its sizes and rates.
        jumps: whether each jump that is met is taken, which depends on data.

    Raises:
        ArgumentError: the program jumps more often.
    """
    memory = _MemoryTimes(program)
    free = dict.fromkeys(UNITS, 0)
    costs: dict[int, InstructionCost] = {}

    taken, issued = iter(jumps), 0

    def is_taken(operand: InstructionOperand, iterations: tuple[int, int]) -> bool:
        found = next(taken, None)
        if found is None:
            raise ArgumentError(
                "[accelerator_model] the time of a program that jumps depends on data; give report() inputs"
            )
        return found

    for position, instruction, iterations in executed(program, is_taken):
        if OPCODES[CODES[instruction.name]].kind == "control":
            for one in registers_of(program, instruction):  # what a jump depends on must be there
                issued = max(issued, memory.written(one, iterations))
            continue
        cost = costs.get(position)
        if cost is None:
            cost = costs[position] = cost_of(program, instruction, hardware)
        result = program.registers[instruction.result]
        reads = [program.registers[o.position] for o in instruction.operands if o.kind == "register"]
        ready = max(issued, memory.ready(result, reads, iterations))
        start = max(ready, free[cost.unit])
        free[cost.unit] = start + cost.cycles
        end = start + cost.cycles + LATENCY[cost.unit]
        memory.note(result, reads, iterations, end)
        yield TimedInstruction(position, cost, start, end)


class _MemoryTimes:
    """The cycles at which each piece of memory was last written, and last read."""

    def __init__(self, program: OpProgram) -> None:
        self._border = program.scratchpad.start
        sizes = (self._border // DRAM_GRAIN + 1, program.scratchpad.words // SCRATCHPAD_GRAIN + 1)
        self._written = [np.zeros(size, np.int64) for size in sizes]
        self._read = [np.zeros(size, np.int64) for size in sizes]

    def _pieces(self, register: Register, iterations: tuple[int, int]) -> tuple[int, slice]:
        first, second = register.steps
        shift = iterations[0] * first + iterations[1] * second
        start, end = register.offset + shift, end_of(register) + shift
        if register.offset < self._border:
            return 0, slice(start // DRAM_GRAIN, (end - 1) // DRAM_GRAIN + 1)
        start, end = start - self._border, end - self._border
        return 1, slice(start // SCRATCHPAD_GRAIN, (end - 1) // SCRATCHPAD_GRAIN + 1)

    def ready(self, result: Register, reads: list[Register], iterations: tuple[int, int]) -> int:
        """The cycle from which on an instruction finds what it reads, and disturbs nobody."""
        space, piece = self._pieces(result, iterations)
        latest = max(int(self._written[space][piece].max()), int(self._read[space][piece].max()))
        return max([latest, *(self.written(one, iterations) for one in reads)])

    def written(self, register: Register, iterations: tuple[int, int]) -> int:
        """The cycle from which on a register's words are there."""
        space, piece = self._pieces(register, iterations)
        return int(self._written[space][piece].max())

    def note(self, result: Register, reads: list[Register], iterations: tuple[int, int], end: int) -> None:
        for one in reads:
            space, piece = self._pieces(one, iterations)
            np.maximum(self._read[space][piece], end, out=self._read[space][piece])
        space, piece = self._pieces(result, iterations)
        np.maximum(self._written[space][piece], end, out=self._written[space][piece])
