"""The interpreter in NumPy, one instruction at a time: a trace, and what the shader is tested against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dl4all.graph.op_codes.disassembler import instruction_text
from dl4all.graph.op_codes.instruction import (
    Array,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    program_of,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.validity import check_program


class SimulatedStep(NamedTuple):
    """An instruction that has run: its text, copies of what it read, and what it wrote."""

    text: str
    operands: tuple[Array, ...]
    result: Array


def steps(
    words: Array, arena: Array, buffers: Sequence[Array] = (), parameters: Sequence[float] = ()
) -> Iterator[SimulatedStep]:
    """Run a program, and stop after each instruction.

    Args:
        words: of the program.
        arena: float32, one axis; it is changed.
        buffers: float32, one axis each; those that are stored to are changed.
        parameters: the numbers p0, p1, ...

    Raises:
        ArgumentError: the program is not legal.

    Example:
        >>> from dl4all.graph.op_codes.assembler import assemble
        >>> arena = np.array([1, 2, 0, 0], np.float32)
        >>> for step in steps(assemble("r0: @0 [2]\\nr1: @2 [2]\\nmul r1, r0, #0.5"), arena):
        ...     print(step.text, step.result)
        mul r1, r0, #0.5 [0.5 1. ]
    """
    program = program_of(words)
    check_program(program, len(arena))
    for instruction in program.instructions:
        view = view_of(program.registers[instruction.result], arena)
        operands = tuple(
            _value(program, operand, arena, parameters).copy() for operand in instruction.operands
        )
        _run(instruction, view, operands, buffers)
        yield SimulatedStep(instruction_text(program, instruction), operands, np.squeeze(view.copy()))


def run(words: Array, arena: Array, buffers: Sequence[Array] = (), parameters: Sequence[float] = ()) -> None:
    """Run a program to its end; see :func:`steps`."""
    for _ in steps(words, arena, buffers, parameters):
        pass


def view_of(register: Register, arena: Array) -> Array:
    """A register as an array of four axes on the arena's memory."""
    return np.lib.stride_tricks.as_strided(
        arena[register.offset :], register.sizes, [4 * stride for stride in register.strides]
    )


def _value(
    program: OpProgram, operand: InstructionOperand, arena: Array, parameters: Sequence[float]
) -> Array:
    if operand.kind == "register":
        return view_of(program.registers[operand.position], arena)
    if operand.kind == "parameter":
        return np.array(parameters[operand.position], np.float32)
    return np.array(program.numbers[operand.position], np.uint32).view(np.float32)


def _run(
    instruction: Instruction, result: Array, operands: Sequence[Array], buffers: Sequence[Array]
) -> None:
    code = OPCODES[CODES[instruction.name]]
    with np.errstate(all="ignore"):
        if code.kind in ("arithmetic", "function"):
            assert code.compute is not None
            result[...] = code.compute(*operands)
        elif code.kind == "reduction":
            assert code.compute is not None
            result[...] = code.compute(operands[0], axis=-1, keepdims=True)
        elif code.kind == "product":
            result[...] = operands[0] @ operands[1] + (operands[2] if len(operands) > 2 else 0)
        elif code.name == "one_hot":
            indices = operands[0].view(np.int32).reshape(-1, 1)
            result[0, 0] = indices == np.arange(result.shape[-1])
        elif code.name == "take_rows":
            indices = operands[1].view(np.int32).reshape(-1)
            result[0, 0] = np.where(indices[:, None] < 0, 0, operands[0][0, 0][indices])
        else:
            first = instruction.start
            outside = buffers[instruction.buffer][first : first + result.size]
            if code.name == "load":
                result.reshape(-1)[...] = outside
            else:
                outside[...] = result.reshape(-1)
