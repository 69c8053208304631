"""Programs as text, which the assembler reads back."""

from __future__ import annotations

import numpy as np

from dl4all.graph.op_codes.instruction import (
    Array,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    SlidingWindow,
    contiguous,
    program_of,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES


def disassemble(code: Array) -> str:
    """The text of a program.

    Raises:
        ArgumentError: the words hold no program.

    Example:
        >>> from dl4all.graph.op_codes.assembler import assemble
        >>> print(disassemble(assemble("r0:  @0 [2, 3]\\n mul r0, r0, #0.50 ; half")), end="")
        r0: @0 [2, 3]
        mul r0, r0, #0.5
    """
    program = program_of(code)
    start, words = program.scratchpad
    lines = [f"scratchpad: @{start} [{words}]"] if words else []
    lines += [f"r{position}: {register_text(one)}" for position, one in enumerate(program.registers)]
    lines += [f"w{position}: {window_text(one)}" for position, one in enumerate(program.windows)]
    lines += [instruction_text(program, instruction) for instruction in program.instructions]
    return "\n".join(lines) + "\n"


def register_text(register: Register) -> str:
    """A register's offset and sizes, and its strides where it is not contiguous."""
    missing = next((axis for axis, size in enumerate(register.sizes) if size != 1), len(register.sizes))
    text = f"@{register.offset} {list(register.sizes[missing:])}"
    if register.strides != contiguous(register.sizes):
        text += f" / {list(register.strides[missing:])}"
    return text + (f" + {list(register.steps)}" if any(register.steps) else "")


def window_text(window: SlidingWindow) -> str:
    """A window's size, and what differs from windows that lie side by side without padding.

    >>> window_text(SlidingWindow((3, 3), padding=(1, 1)))
    '[3, 3] padding [1, 1]'
    """
    usual = SlidingWindow(window.size)
    pairs = zip(SlidingWindow._fields, window, usual, strict=True)
    return f"{list(window.size)}" + "".join(f" {n} {list(own)}" for n, own, other in pairs if own != other)


def instruction_text(program: OpProgram, instruction: Instruction) -> str:
    """One line, such as ``wait mul r2, r1, #0.5``."""
    words = [f"r{instruction.result}"]
    kind = OPCODES[CODES[instruction.name]].kind
    if kind == "control":
        words = [] if instruction.operands else [f"i{instruction.result}"]
    if kind == "transfer":
        start = f"+{instruction.immediate}" if instruction.immediate else ""
        words.append(f"b{instruction.buffer}{start}")
    words += [_operand_text(program, operand) for operand in instruction.operands]
    if kind == "window":
        words.append(f"w{instruction.immediate}")
    elif kind == "control" and instruction.name != "end":
        words.append(str(instruction.immediate))
    return f"{'wait ' if instruction.wait else ''}{instruction.name} {', '.join(words)}"


def _operand_text(program: OpProgram, operand: InstructionOperand) -> str:
    if operand.kind == "register":
        return f"r{operand.position}"
    if operand.kind == "parameter":
        return f"p{operand.position}"
    return f"#{number_text(program.numbers[operand.position])}"


def number_text(bits: int) -> str:
    """The shortest decimal number that rounds to a float of these bits; the bits themselves of a nan.

    >>> number_text(0x3dcccccd), number_text(0x7fc00000)
    ('0.1', '0x7fc00000')
    """
    value = np.uint32(bits).view(np.float32)
    return f"{bits:#010x}" if np.isnan(value) else str(value)
