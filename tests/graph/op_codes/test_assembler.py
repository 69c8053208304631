"""Text to words and back."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.assembler import assemble, intern_number, number_bits
from dl4all.graph.op_codes.disassembler import disassemble, number_text
from dl4all.graph.op_codes.instruction import (
    COUNTERS,
    PARAMETERS,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    SlidingWindow,
    program_of,
    register,
    words_of,
)
from dl4all.graph.op_codes.opcode import OPCODES, Opcode
from dl4all.graph.op_codes.validity import MOST_BUFFERS, check_program, end_of

WORDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 7)


@st.composite
def programs(draw: st.DrawFn) -> OpProgram:
    """Legal programs of every op code, with registers wherever they may lie."""
    registers: list[Register] = []
    numbers: list[int] = []

    def new(*sizes: int) -> int:
        turned = draw(st.booleans())
        strides = tuple(np.cumprod((1, *sizes[:-1])).tolist()) if turned else None
        registers.append(register(draw(st.integers(0, 1000)), sizes, strides))
        return len(registers) - 1

    def operand(*sizes: int) -> InstructionOperand:
        kind = draw(st.sampled_from(("register", "number", "parameter")))
        if kind == "number":
            return InstructionOperand("number", intern_number(draw(WORDS), numbers))
        if kind == "parameter":
            return InstructionOperand("parameter", draw(st.integers(0, PARAMETERS - 1)))
        kept = [draw(st.sampled_from((1, size))) for size in sizes]
        return InstructionOperand("register", new(*kept))

    def instruction(code: Opcode) -> Instruction:
        result: tuple[int, ...]
        shapes: list[tuple[int, ...]]
        wait, (rows, depth, columns) = draw(st.booleans()), (draw(SIZES), draw(SIZES), draw(SIZES))
        if code.kind == "transfer":
            registers.append(register(draw(st.integers(0, 1000)), (rows, columns)))
            return Instruction(
                code.name, len(registers) - 1, (), draw(st.integers(0, MOST_BUFFERS - 1)), draw(WORDS), wait
            )
        if code.kind == "window":
            return window_instruction(code, wait)
        if code.kind in ("arithmetic", "function", "index"):
            read = tuple(operand(rows, columns) for _ in range(code.operands))
            return Instruction(code.name, new(rows, columns), read, wait=wait)
        if code.kind == "reduction":
            result, shapes = (rows, 1), [(rows, depth)]
        elif code.name == "pack_int8":
            result, shapes = (rows, columns), [(rows, 4 * columns), (rows, 1)]
        elif code.kind in ("product", "packed"):
            result, shapes = (rows, columns), [(rows, depth), (depth, columns)]
        elif code.name == "one_hot":
            result, shapes = (rows, columns), [(rows,)]
        else:
            result, shapes = (rows, columns), [(depth, columns), (rows,)]
        read = tuple(InstructionOperand("register", new(*shape)) for shape in shapes)
        if code.optional and draw(st.booleans()):
            read += (operand(*result),)
        return Instruction(code.name, new(*result), read, wait=wait)

    def window_instruction(code: Opcode, wait: bool) -> Instruction:
        size = (draw(SIZES), draw(SIZES))
        stride, dilation = (draw(SIZES), draw(SIZES)), (draw(SIZES), draw(SIZES))
        padding = (
            draw(st.integers(0, (size[0] - 1) * dilation[0])),
            draw(st.integers(0, (size[1] - 1) * dilation[1])),
        )
        windows.append(SlidingWindow(size, stride, padding, dilation))
        height, width = (draw(st.integers(1, 9)) for _ in range(2))
        groups, channels, filters = draw(SIZES), draw(SIZES), draw(SIZES)
        out = [(n - 1 + padding[axis]) // stride[axis] + 1 for axis, n in enumerate((height, width))]
        images = new(draw(SIZES), groups * channels, height, width)
        read = [InstructionOperand("register", images)]
        sizes = (registers[images].sizes[0], groups * channels, *out)
        if code.name == "conv":
            sizes = (sizes[0], groups * filters, *out)
            read.append(InstructionOperand("register", new(groups * filters, channels, *size)))
            if draw(st.booleans()):
                read.append(operand(*sizes))
        return Instruction(code.name, new(*sizes), tuple(read), immediate=len(windows) - 1, wait=wait)

    windows: list[SlidingWindow] = []
    instructions: list[Instruction] = []
    inside: list[int] = []
    for code in draw(st.lists(st.sampled_from(OPCODES), max_size=8)):
        if code.name == "loop" and len(inside) < COUNTERS:
            inside.append(next(n for n in draw(st.permutations(range(COUNTERS))) if n not in inside))
            instructions.append(Instruction("loop", inside[-1], immediate=draw(st.integers(1, 9))))
        elif code.name == "jump" and not inside:
            read = (operand(draw(SIZES)),)
            instructions.append(Instruction("jump", 0, read, immediate=0))
        elif code.kind != "control":
            instructions.append(instruction(code))
    instructions += [Instruction("end", counter) for counter in reversed(inside)]
    return OpProgram(tuple(registers), tuple(numbers), tuple(instructions), tuple(windows))


@given(programs())
def test_words_and_text_say_the_same(program: OpProgram) -> None:
    words = words_of(program)
    assert program_of(words) == program
    text = disassemble(words)
    np.testing.assert_array_equal(assemble(text), words)
    assert disassemble(assemble(text)) == text


@given(programs())
def test_registers_must_lie_in_the_arena(program: OpProgram) -> None:
    needed = max((end_of(one) for one in program.registers), default=0)
    check_program(program, needed)
    if needed:
        with pytest.raises(ArgumentError, match="of an arena of"):
            check_program(program, needed - 1)


@given(WORDS)
def test_numbers_keep_their_bits(bits: int) -> None:
    assert number_bits(number_text(bits)) == bits


def test_spaces_and_comments_do_not_count() -> None:
    loose = "; a program\n\n  r0:  @0 [3] ; three words\n\twait  add r0,r0 ,  #0.50  "
    assert disassemble(assemble(loose)) == "r0: @0 [3]\nwait add r0, r0, #0.5\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("frobnicate r0, r1", "there is no op code 'frobnicate'"),
        ("add r0, r1", "takes 2 operands, got 1"),
        ("add r0, r1, r2, r3", "takes 2 operands, got 3"),
        ("add r9, r1, r1", "there is no r9"),
        ("add r0, r1, r9", "there is no r9"),
        ("add #1.0, r1, r1", "expected r and a number, got '#1.0'"),
        ("add r0, r1, #one", "'one' is no number"),
        ("add r0, r1, p30", "parameters are p0 to p29"),
        ("add r1, r0, r0", "does not fit"),
        ("copy r2, r0", "repeats elements"),
        ("copy r0, r4", "r4 has no elements"),
        ("conv r5, r5, r6, w0", "r6 has no elements"),
        ("matmul r0, r0, r0", "sizes differ: 1x1x4x2 @ 1x1x4x2"),
        ("matmul r0, r0, #1.0", "takes a register here, got a number"),
        ("row_sum r0, r0", "expected a result of sizes 1x1x4x1, got 1x1x4x2"),
        ("one_hot r0, r1", "expected a result of sizes 1x1x2x2"),
        ("load r0, r1", "expected b and a number"),
        ("load r0, b6", "buffers are b0 to b5"),
        ("load r0", "takes a register and a buffer"),
        ("store r3, b0", "must be contiguous"),
        ("r9: @0 [2]", "expected r7, got r9"),
        ("w2: [2, 2]", "expected w1, got w2"),
        ("max_pool r0, r0, w5", "there is no w5"),
        ("max_pool r0, r0", "expected w and a number"),
        ("jump r0", "expected loop i0, 8"),
        ("pack_int8 r0, r0, #1", "packs four elements to a word"),
        ("r7: @0 [2, 2] / [1]", "expected a stride for each size"),
        ("r7: @0 [1, 2, 3, 4, 5]", "4 axes at most"),
        ("nonsense", "expected a register"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    head = "r0: @0 [4, 2]\nr1: @8 [2]\nr2: @9 [4, 2] / [0, 1]\nr3: @0 [2, 4] / [1, 2]\n"
    head += "r4: @0 [0, 2]\nr5: @0 [1, 2, 2, 2]\nr6: @0 [2, 0, 1, 1]\nw0: [1, 1]\n"
    with pytest.raises(ArgumentError, match="(?s)" + re.escape(message) + r".*\(line 9: "):
        assemble(head + line)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("loop i2, 3", "counters are i0 to i1, each for one loop at a time; got i2 (instruction 0)"),
        ("loop i0, 3\nloop i0, 3\nend i0\nend i0", "got i0 (instruction 1)"),
        ("loop i0, 0\nend i0", "runs at least once, got 0 (instruction 0)"),
        ("loop i0, 3", "has no end (instruction 0)"),
        ("loop i0, 3\nloop i1, 3\nend i0\nend i1", "i0 is not the innermost loop (instruction 2)"),
        ("end i0", "is not the innermost loop (instruction 0)"),
        ("jump r0, 7", "leads to instruction 7 of 1"),
        ("jump r0, 2\nloop i0, 3\nadd r0, r0, r0\nend i0", "into or out of a loop (instruction 0)"),
        ("loop i0, 3\njump r0, 3\nend i0", "into or out of a loop (instruction 1)"),
    ],
)
def test_loops_and_jumps_that_lead_nowhere(lines: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        assemble("r0: @0 [2]\n" + lines)


@pytest.mark.parametrize(
    "words",
    [
        [1],
        [1, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 255, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 8, 0xC001, 0, 0],
    ],
)
def test_words_that_are_no_program(words: list[int]) -> None:
    with pytest.raises(ArgumentError, match=r"\[op codes\]"):
        program_of(np.array(words, np.uint32))
