"""Rules of legal instructions. Nothing else may reach the interpreter, which checks nothing."""

from __future__ import annotations

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.instruction import (
    MOST,
    PARAMETERS,
    Axes,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    contiguous,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES, Opcode

MOST_BUFFERS = 6


def check_program(program: OpProgram, arena_words: int) -> None:
    """
    Raises:
        ArgumentError: an instruction is not legal, or a register does not lie in the arena.
    """
    if len(program.registers) > MOST or len(program.numbers) > MOST:
        raise ArgumentError(f"[op codes] a program has at most {MOST} registers and numbers")
    for position, one in enumerate(program.registers):
        if end_of(one) > arena_words:
            raise ArgumentError(
                f"[op codes] r{position} ends at word {end_of(one)} of an arena of {arena_words}"
            )
    for instruction in program.instructions:
        check_instruction(program, instruction)


def end_of(register: Register) -> int:
    """The first word behind a register."""
    axes = zip(register.sizes, register.strides, strict=True)
    return register.offset + sum((size - 1) * stride for size, stride in axes) + 1


def check_instruction(program: OpProgram, instruction: Instruction) -> None:
    """
    Raises:
        ArgumentError: operands are missing or too many, or sizes do not fit.
    """
    name, code = instruction.name, OPCODES[CODES[instruction.name]]
    count = len(instruction.operands)
    if not code.operands - code.optional <= count <= code.operands:
        raise ArgumentError(f"[{name}] takes {code.operands} operands, got {count}")
    result = _register(program, InstructionOperand("register", instruction.result), name)
    repeated = any(s > 1 and not step for s, step in zip(result.sizes, result.strides, strict=True))
    if repeated:
        raise ArgumentError(f"[{name}] r{instruction.result} repeats elements and cannot be a result")
    if 0 in result.sizes:
        raise ArgumentError(f"[{name}] r{instruction.result} has no elements")
    for operand in instruction.operands:
        _check_operand(program, operand, name)
    if code.kind == "transfer":
        if result.strides != contiguous(result.sizes):
            raise ArgumentError(f"[{name}] r{instruction.result} must be contiguous")
        if not 0 <= instruction.buffer < MOST_BUFFERS:
            raise ArgumentError(f"[{name}] buffers are b0 to b{MOST_BUFFERS - 1}, got b{instruction.buffer}")
    else:
        _check_sizes(program, instruction, code, result)


def _register(program: OpProgram, operand: InstructionOperand, name: str) -> Register:
    if operand.kind != "register":
        raise ArgumentError(f"[{name}] takes a register here, got a {operand.kind}")
    if operand.position >= len(program.registers):
        raise ArgumentError(f"[{name}] there is no r{operand.position}")
    return program.registers[operand.position]


def _check_operand(program: OpProgram, operand: InstructionOperand, name: str) -> None:
    if operand.kind == "register":
        _register(program, operand, name)
    elif operand.kind == "parameter" and operand.position >= PARAMETERS:
        raise ArgumentError(f"[{name}] parameters are p0 to p{PARAMETERS - 1}, got p{operand.position}")
    elif operand.kind == "number" and operand.position >= len(program.numbers):
        raise ArgumentError(f"[{name}] there is no number {operand.position}")


def _check_sizes(program: OpProgram, instruction: Instruction, code: Opcode, result: Register) -> None:
    """
    Raises:
        ArgumentError: the sizes of the operands do not give those of the result.
    """
    name, operands, sizes = instruction.name, instruction.operands, result.sizes
    if code.kind in ("arithmetic", "function"):
        for operand in operands:
            _check_broadcast(program, operand, sizes, name)
        return
    a = _register(program, operands[0], name).sizes
    if code.kind == "reduction":
        expected: Axes = (*a[:3], 1)
    elif code.kind == "product":
        b = _register(program, operands[1], name).sizes
        if a[3] != b[2] or any(
            one not in (1, most) for side in (a, b) for one, most in zip(side, sizes[:2], strict=False)
        ):
            raise ArgumentError(f"[{name}] sizes differ: {_text(a)} @ {_text(b)}")
        expected = (*sizes[:2], a[2], b[3])
        if len(operands) > 2:
            _check_broadcast(program, operands[2], sizes, name)
    elif name == "one_hot":
        expected = (1, 1, a[3], sizes[3])
    else:
        expected = (1, 1, _register(program, operands[1], name).sizes[3], a[3])
    if sizes != expected:
        raise ArgumentError(f"[{name}] expected a result of sizes {_text(expected)}, got {_text(sizes)}")


def _check_broadcast(program: OpProgram, operand: InstructionOperand, sizes: Axes, name: str) -> None:
    if operand.kind != "register":
        return
    own = _register(program, operand, name).sizes
    if any(one not in (1, most) for one, most in zip(own, sizes, strict=True)):
        raise ArgumentError(f"[{name}] r{operand.position} of {_text(own)} does not fit {_text(sizes)}")


def _text(sizes: Axes) -> str:
    return "x".join(map(str, sizes))
