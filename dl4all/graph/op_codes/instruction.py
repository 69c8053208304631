"""Programs: registers, numbers and instructions, and how they lie in 32-bit words.

A program works on one array of 32-bit words, the arena. A register is a view of a piece of it: an offset,
and a size and a stride for each of four axes, so that transposing and broadcasting are other registers on the
same memory. Operands are registers, numbers that belong to the program, and parameters, which are push
constants and may change from run to run. ``load`` and ``store`` bring tensors from outside into the arena and
back.

Programs of the accelerator (:mod:`dl4all.graph.accelerator`) have a scratchpad: the last words of the arena,
where all computing happens; what lies in front of it is its DRAM. They have windows, which convolutions and
pools walk with, and loops, of two counters at most: a register moves by its steps with each iteration.

In words a program is a header, the registers, the numbers, the windows, and four words for each instruction::

    registers  numbers  instructions  windows  start  words    how many there are of each; the scratchpad
    offset  size x 4  stride x 4  step x 2                     a register
    number                                                     the bits of a float or an int
    size x 2  stride x 2  padding x 2  dilation x 2            a window
    code | flags << 8 | result << 16  a | b << 16  c  elements        an instruction
    code | flags << 8 | result << 16  a | b << 16  c  immediate       a window's, a loop, a jump
    code | flags << 8 | result << 16  tensor  elements  immediate     a load or store

What each code means is in :mod:`dl4all.graph.op_codes.opcode`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.opcode import CODES, OPCODES

Array: TypeAlias = npt.NDArray[Any]
Axes: TypeAlias = tuple[int, int, int, int]

AXES = 4
COUNTERS = 2
HEADER_WORDS = 6
REGISTER_WORDS = 1 + 2 * AXES + COUNTERS
WINDOW_WORDS = 8
INSTRUCTION_WORDS = 4
PARAMETERS = 30
"""Push constants that instructions can take as operands: with two of the dispatch's own, 128 bytes."""
NO_STRIDES: Axes = (0, 0, 0, 0)
MOST = 1 << 14
"""Registers of a program, and numbers: operands have 14 bits for the position and 2 for the kind."""


class Flag(enum.IntFlag):
    """The flags of an instruction. ``WAIT`` is the programmer's; the others follow from the registers."""

    WAIT = 1  # for all invocations to finish the instructions before
    FLAT = 2  # operands and result are contiguous or one element: no index has to be taken apart
    A_STAYS = 4  # operand a is one element, or no register
    B_STAYS = 8
    C_STAYS = 16


class InstructionOperand(NamedTuple):
    """An operand of an instruction: ``register``, ``number`` or ``parameter`` of this position."""

    kind: Literal["register", "number", "parameter"]
    position: int


OPERAND_KINDS: tuple[Literal["register", "number", "parameter"], ...] = ("register", "number", "parameter")
NO_OPERAND = 0xFFFF
IMMEDIATE = ("window", "control")
"""Kinds of instructions with a number of their own; transfers have one, too."""


class Register(NamedTuple):
    """A view of the arena; offset, strides and the steps of each loop's iteration count words."""

    offset: int
    sizes: Axes
    strides: Axes
    steps: tuple[int, int] = (0, 0)

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)


class SlidingWindow(NamedTuple):
    """The windows that a convolution or pool walks with: vertical and horizontal.

    ``padding`` are the zeros in front; those behind follow from the size of the result.
    """

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def extent(self, axis: int, count: int) -> int:
        """The elements that so many windows along an axis span, the padding in front included."""
        return (count - 1) * self.stride[axis] + (self.size[axis] - 1) * self.dilation[axis] + 1


class Instruction(NamedTuple):
    """One instruction. ``result`` is a register; of a loop, its counter.

    Of a transfer, which has no operands, ``buffer`` is the tensor outside, and ``immediate`` its first word.
    Otherwise ``immediate`` is the position of a window, the iterations of a loop, or where a jump leads.
    """

    name: str
    result: int
    operands: tuple[InstructionOperand, ...] = ()
    buffer: int = 0
    immediate: int = 0
    wait: bool = False


class Scratchpad(NamedTuple):
    """The words of the arena on which an accelerator computes."""

    start: int
    words: int

    @property
    def end(self) -> int:
        return self.start + self.words


NO_SCRATCHPAD = Scratchpad(0, 0)


@dataclass(frozen=True)
class OpProgram:
    """Instructions, and the registers, numbers and windows that they name; numbers are the bits of floats."""

    registers: tuple[Register, ...]
    numbers: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    windows: tuple[SlidingWindow, ...] = ()
    scratchpad: Scratchpad = NO_SCRATCHPAD


def axes_of(sizes: Sequence[int], fill: int) -> Axes:
    """Sizes or strides of at most four axes as four, with `fill` for the axes in front.

    Raises:
        ArgumentError: there are more than four.
    """
    if len(sizes) > AXES:
        raise ArgumentError(f"[op codes] registers have {AXES} axes at most, got {tuple(sizes)}; merge some")
    padded = (fill,) * (AXES - len(sizes)) + tuple(sizes)
    return padded[0], padded[1], padded[2], padded[3]


def contiguous(sizes: Axes) -> Axes:
    """The strides of a row-major register; 0 along axes of one element."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(0 if size == 1 else step)
        step *= size
    return strides[3], strides[2], strides[1], strides[0]


def register(offset: int, sizes: Sequence[int], strides: Sequence[int] | None = None) -> Register:
    """A register, by default contiguous.

    Raises:
        ArgumentError: there are more than four axes, or not as many strides.

    >>> register(8, (2, 3))
    Register(offset=8, sizes=(1, 1, 2, 3), strides=(0, 0, 3, 1), steps=(0, 0))
    """
    padded = axes_of(sizes, 1)
    if strides is None:
        return Register(offset, padded, contiguous(padded))
    if len(strides) != len(sizes):
        raise ArgumentError(
            f"[op codes] expected a stride for each size of {tuple(sizes)}, got {tuple(strides)}"
        )
    steps = zip(padded, axes_of(strides, 0), strict=True)
    first, second, third, fourth = (0 if size == 1 else stride for size, stride in steps)
    return Register(offset, padded, (first, second, third, fourth))


def flags_of(program: OpProgram, instruction: Instruction) -> Flag:
    """Flags that save the interpreter from finding something out."""
    result = program.registers[instruction.result]
    flags = Flag.WAIT * instruction.wait | Flag.A_STAYS | Flag.B_STAYS | Flag.C_STAYS
    flat = result.strides == contiguous(result.sizes)
    steps = zip(instruction.operands, (Flag.A_STAYS, Flag.B_STAYS, Flag.C_STAYS), strict=False)
    for operand, stays in steps:
        strides = program.registers[operand.position].strides if operand.kind == "register" else NO_STRIDES
        if any(strides):
            flags &= ~stays
            flat = flat and strides == result.strides
    return flags | Flag.FLAT * flat


def words_of(program: OpProgram) -> npt.NDArray[np.uint32]:
    """The program as the interpreter reads it.

    >>> half = int(np.float32(0.5).view(np.uint32))
    >>> double = Instruction("add", 0, (InstructionOperand("register", 0), InstructionOperand("register", 0)))
    >>> program = OpProgram((register(0, (3,)),), (half,), (double,))
    >>> program_of(words_of(program)) == program
    True
    """
    words = [len(program.registers), len(program.numbers), len(program.instructions)]
    words += [len(program.windows), *program.scratchpad]
    for one in program.registers:
        words += [one.offset, *one.sizes, *one.strides, *one.steps]
    words += program.numbers
    for window in program.windows:
        words += [word for pair in window for word in pair]
    for instruction in program.instructions:
        kind = OPCODES[CODES[instruction.name]].kind
        control = kind == "control"  # has no result
        elements = 0 if control else program.registers[instruction.result].elements
        flags = Flag.WAIT * instruction.wait if control else flags_of(program, instruction)
        words.append(CODES[instruction.name] | flags << 8 | instruction.result << 16)
        if kind == "transfer":
            words += [instruction.buffer, elements, instruction.immediate]
        else:
            operands = [_operand_word(operand) for operand in instruction.operands]
            operands += [NO_OPERAND] * (3 - len(operands))
            last = instruction.immediate if kind in IMMEDIATE else elements
            words += [operands[0] | operands[1] << 16, operands[2], last]
    return np.array(words, np.uint32)


def program_of(words: Array) -> OpProgram:
    """The program that words hold.

    Raises:
        ArgumentError: they hold none.
    """
    numbers = [int(word) for word in words]
    if len(numbers) < HEADER_WORDS:
        raise ArgumentError(f"[op codes] a program begins with {HEADER_WORDS} words, got {len(numbers)}")
    registers, constants, instructions, windows, *scratchpad = numbers[:HEADER_WORDS]
    second = HEADER_WORDS + registers * REGISTER_WORDS
    third = second + constants
    fourth = third + windows * WINDOW_WORDS
    end = fourth + instructions * INSTRUCTION_WORDS
    if len(numbers) != end:
        raise ArgumentError(f"[op codes] the header promises {end} words, got {len(numbers)}")
    return OpProgram(
        tuple(_register_of(words) for words in _pieces(numbers[HEADER_WORDS:second], REGISTER_WORDS)),
        tuple(numbers[second:third]),
        tuple(_instruction_of(words) for words in _pieces(numbers[fourth:], INSTRUCTION_WORDS)),
        tuple(_window_of(words) for words in _pieces(numbers[third:fourth], WINDOW_WORDS)),
        Scratchpad(*scratchpad),
    )


def _pieces(words: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (words[at : at + size] for at in range(0, len(words), size))


def _operand_word(operand: InstructionOperand) -> int:
    return operand.position | OPERAND_KINDS.index(operand.kind) << 14


def _operand_of(word: int) -> InstructionOperand:
    if word >> 14 >= len(OPERAND_KINDS):
        raise ArgumentError(f"[op codes] {word:#06x} is no operand")
    return InstructionOperand(OPERAND_KINDS[word >> 14], word & (MOST - 1))


def _register_of(words: Sequence[int]) -> Register:
    offset, a, b, c, d, e, f, g, h, first, second = words
    return Register(offset, (a, b, c, d), (e, f, g, h), (first, second))


def _window_of(words: Sequence[int]) -> SlidingWindow:
    a, b, c, d, e, f, g, h = words
    return SlidingWindow((a, b), (c, d), (e, f), (g, h))


def _instruction_of(words: Sequence[int]) -> Instruction:
    code, flags, result = words[0] & 0xFF, words[0] >> 8 & 0xFF, words[0] >> 16
    if code >= len(OPCODES):
        raise ArgumentError(f"[op codes] there are {len(OPCODES)} op codes, got {code}")
    wait = bool(flags & Flag.WAIT)
    if OPCODES[code].kind == "transfer":
        return Instruction(OPCODES[code].name, result, (), words[1] & 0xFFFF, words[3], wait)
    operands = (words[1] & 0xFFFF, words[1] >> 16, words[2] & 0xFFFF)
    read = tuple(_operand_of(operand) for operand in operands if operand != NO_OPERAND)
    immediate = words[3] if OPCODES[code].kind in IMMEDIATE else 0
    return Instruction(OPCODES[code].name, result, read, immediate=immediate, wait=wait)
