"""Text to programs.

A line declares a register, or is an instruction; what follows a semicolon is a comment::

    r0: @0 [4, 2]              a register: its first word in the arena, and its sizes
    r1: @0 [2, 4] / [1, 2]     the same words transposed: with strides
    r2: @8 [4, 2]
    load r0, b0                the words of tensor 0 outside
    wait mul r2, r0, #0.5      result, then operands: registers, numbers, parameters such as p0
    wait store r2, b1+16       to those of tensor 1, from word 16 on

``wait`` lets all invocations finish what comes before. An instruction needs it where it reads words that
others have written, or writes words that others have read. Flat elementwise instructions on the same elements
do not need it, as each invocation finds what it has written itself.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.instruction import (
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    register,
    words_of,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.validity import check_instruction

DECLARATION = re.compile(r"r(\d+): @(\d+) \[([\d, ]*)\](?: / \[([\d, ]*)\])?")
INSTRUCTION = re.compile(r"(wait )?(\w+) (.+)")


def assemble(text: str) -> npt.NDArray[np.uint32]:
    """The words of a program.

    Raises:
        ArgumentError: a line is not as above, or not legal; it names the line.

    Example:
        >>> assemble("r0: @0 [3]\\nadd r0, r0, #1.0").tolist()[:4]
        [1, 1, 1, 0]
    """
    return words_of(parse(text))


def parse(text: str) -> OpProgram:
    """The program that a text describes.

    Raises:
        ArgumentError: as :func:`assemble`.
    """
    registers: list[Register] = []
    numbers: list[int] = []
    instructions: list[Instruction] = []
    for number, line in enumerate(text.splitlines(), 1):
        code = " ".join(line.partition(";")[0].split())
        if not code:
            continue
        try:
            if declared := DECLARATION.fullmatch(code):
                registers.append(_register(declared, len(registers)))
            else:
                instructions.append(_instruction(code, numbers))
                check_instruction(OpProgram(tuple(registers), tuple(numbers), ()), instructions[-1])
        except ArgumentError as error:
            raise ArgumentError(f"{error} (line {number}: {code})") from None
    return OpProgram(tuple(registers), tuple(numbers), tuple(instructions))


def _register(declared: re.Match[str], expected: int) -> Register:
    position, offset, sizes, strides = declared.groups()
    if int(position) != expected:
        raise ArgumentError(
            f"[assemble] registers are declared in order: expected r{expected}, got r{position}"
        )
    return register(int(offset), _integers(sizes), None if strides is None else _integers(strides))


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",")) if text.strip() else ()


def _instruction(code: str, numbers: list[int]) -> Instruction:
    found = INSTRUCTION.fullmatch(code)
    if found is None:
        raise ArgumentError("[assemble] expected a register, such as r0: @0 [4, 2], or an instruction")
    wait, name, operands = found.groups()
    if name not in CODES:
        raise ArgumentError(f"[assemble] there is no op code {name!r}; there are {', '.join(CODES)}")
    result, *read = (word.strip() for word in operands.split(","))
    target = _position(result, "r")
    if OPCODES[CODES[name]].kind == "transfer":
        if len(read) != 1:
            raise ArgumentError(f"[{name}] takes a register and a buffer, such as b0 or b0+64")
        outside, _, start = read[0].partition("+")
        first = int(start) if start.isdecimal() else 0
        return Instruction(name, target, (), _position(outside, "b"), first, wait is not None)
    parsed = tuple(_operand(word, numbers) for word in read)
    return Instruction(name, target, parsed, wait=wait is not None)


def _position(word: str, letter: str) -> int:
    if not re.fullmatch(rf"{letter}\d+", word):
        raise ArgumentError(f"[assemble] expected {letter} and a number, got {word!r}")
    return int(word[1:])


def _operand(word: str, numbers: list[int]) -> InstructionOperand:
    if word.startswith("#"):
        return InstructionOperand("number", intern_number(number_bits(word[1:]), numbers))
    if word.startswith("p"):
        return InstructionOperand("parameter", _position(word, "p"))
    return InstructionOperand("register", _position(word, "r"))


def intern_number(bits: int, numbers: list[int]) -> int:
    """The position of a number in the program's list, where it is put if it is new."""
    if bits not in numbers:
        numbers.append(bits)
    return numbers.index(bits)


def number_bits(text: str | float) -> int:
    """The bits of the float nearest to a number, or those of a hexadecimal text.

    >>> hex(number_bits("1.0")), number_bits("0x10")
    ('0x3f800000', 16)
    """
    try:
        if isinstance(text, str) and text.startswith("0x"):
            return int(np.uint32(int(text, 16)))
        with np.errstate(over="ignore"):
            return int(np.float32(float(text)).view(np.uint32))
    except (ValueError, OverflowError):
        raise ArgumentError(f"[assemble] {text!r} is no number of 32 bits") from None
