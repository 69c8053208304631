"""Text to programs.

A line declares a register, or is an instruction; what follows a semicolon is a comment::

    r0: @0 [4, 2]              a register: its first word in the arena, and its sizes
    r1: @0 [2, 4] / [1, 2]     the same words transposed: with strides
    r2: @8 [4, 2]
    load r0, b0                the words of tensor 0 outside
    wait mul r2, r0, #0.5      result, then operands: registers, numbers, parameters such as p0
    wait store r2, b1+16       to those of tensor 1, from word 16 on

Programs of the accelerator have a scratchpad, windows and loops, too::

    scratchpad: @4096 [1024]   the first word, and how many there are
    r3: @4096 [8, 8] + [0, 64] a register that moves by 64 words with each iteration of counter i1
    w0: [3, 3] stride [2, 2] padding [1, 1] dilation [1, 1]
    max_pool r4, r3, w0        the window is the last operand
    loop i1, 8                 the instructions up to "end i1" run eight times
    end i1
    jump r2, 5                 goes on at instruction 5 (the first is 0) unless the first element of r2 is 0

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
    Scratchpad,
    SlidingWindow,
    register,
    words_of,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.validity import check_control, check_instruction

DECLARATION = re.compile(r"r(\d+): @(\d+) \[([\d, ]*)\](?: / \[([\d, ]*)\])?(?: \+ \[(\d+), (\d+)\])?")
WINDOW = re.compile(
    r"w(\d+): \[(\d+), (\d+)\]"
    + "".join(rf"(?: {name} \[(\d+), (\d+)\])?" for name in SlidingWindow._fields[1:])
)
SCRATCHPAD = re.compile(r"scratchpad: @(\d+) \[(\d+)\]")
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
    windows: list[SlidingWindow] = []
    numbers: list[int] = []
    instructions: list[Instruction] = []
    scratchpad = Scratchpad(0, 0)
    for number, line in enumerate(text.splitlines(), 1):
        code = " ".join(line.partition(";")[0].split())
        if not code:
            continue
        try:
            if declared := DECLARATION.fullmatch(code):
                registers.append(_register(declared, len(registers)))
            elif declared := WINDOW.fullmatch(code):
                windows.append(_window(declared, len(windows)))
            elif declared := SCRATCHPAD.fullmatch(code):
                scratchpad = Scratchpad(*map(int, declared.groups()))
            else:
                instructions.append(_instruction(code, numbers))
                known = OpProgram(tuple(registers), tuple(numbers), (), tuple(windows), scratchpad)
                check_instruction(known, instructions[-1])
        except ArgumentError as error:
            raise ArgumentError(f"{error} (line {number}: {code})") from None
    program = OpProgram(tuple(registers), tuple(numbers), tuple(instructions), tuple(windows), scratchpad)
    check_control(program)
    return program


def _register(declared: re.Match[str], expected: int) -> Register:
    position, offset, sizes, strides, *steps = declared.groups()
    _check_order("r", position, expected)
    one = register(int(offset), _integers(sizes), None if strides is None else _integers(strides))
    first, second = (int(step or 0) for step in steps)
    return one._replace(steps=(first, second))


def _window(declared: re.Match[str], expected: int) -> SlidingWindow:
    position, *numbers = declared.groups()
    _check_order("w", position, expected)
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    given = zip(SlidingWindow._fields, pairs, strict=True)
    return SlidingWindow(**{name: (int(one), int(two)) for name, (one, two) in given if one is not None})


def _check_order(letter: str, position: str, expected: int) -> None:
    if int(position) != expected:
        raise ArgumentError(
            f"[assemble] {letter}0, {letter}1, ... are declared in order: expected {letter}{expected}, "
            f"got {letter}{position}"
        )


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",")) if text.strip() else ()


def _instruction(code: str, numbers: list[int]) -> Instruction:
    found = INSTRUCTION.fullmatch(code)
    if found is None:
        raise ArgumentError("[assemble] expected a register, such as r0: @0 [4, 2], or an instruction")
    wait, name, operands = found.groups()
    if name not in CODES:
        raise ArgumentError(f"[assemble] there is no op code {name!r}; there are {', '.join(CODES)}")
    kind = OPCODES[CODES[name]].kind
    result, *read = (word.strip() for word in operands.split(","))
    if kind == "control":
        return _control(name, result, read, numbers, wait=wait is not None)
    target = _position(result, "r")
    if kind == "transfer":
        if len(read) != 1:
            raise ArgumentError(f"[{name}] takes a register and a buffer, such as b0 or b0+64")
        outside, _, start = read[0].partition("+")
        first = int(start) if start.isdecimal() else 0
        return Instruction(name, target, (), _position(outside, "b"), first, wait is not None)
    immediate = _position(read.pop(), "w") if kind == "window" and read else 0
    parsed = tuple(_operand(word, numbers) for word in read)
    return Instruction(name, target, parsed, immediate=immediate, wait=wait is not None)


def _control(name: str, first: str, rest: list[str], numbers: list[int], *, wait: bool) -> Instruction:
    if len(rest) != (name != "end") or not all(word.isdecimal() for word in rest):
        raise ArgumentError("[assemble] expected loop i0, 8 or end i0 or jump r0, 5")
    immediate = int(rest[0]) if rest else 0
    if name == "jump":
        return Instruction(name, 0, (_operand(first, numbers),), immediate=immediate, wait=wait)
    return Instruction(name, _position(first, "i"), immediate=immediate, wait=wait)


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
