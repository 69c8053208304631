"""The interpreter in NumPy, one instruction at a time: a trace, and what the shader is tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.disassembler import instruction_text
from dl4all.graph.op_codes.instruction import (
    COUNTERS,
    Array,
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    SlidingWindow,
    program_of,
)
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.validity import check_program

MOST_EXECUTED = 1 << 24
"""Instructions that a program may execute, so that one whose jumps go round for ever ends."""


class ExecutedInstruction(NamedTuple):
    """An instruction of a program, and the iterations in which its loops are."""

    position: int
    instruction: Instruction
    iterations: tuple[int, int]


class SimulatedStep(NamedTuple):
    """An instruction that has run: its text, copies of what it read, and what it wrote."""

    text: str
    operands: tuple[Array, ...]
    result: Array


def steps(
    words: Array,
    arena: Array,
    buffers: Sequence[Array] = (),
    parameters: Sequence[float] = (),
    jumps: list[bool] | None = None,
) -> Iterator[SimulatedStep]:
    """Run a program, and stop after each instruction.

    Args:
        words: of the program.
        arena: float32, one axis; it is changed.
        buffers: float32, one axis each; those that are stored to are changed.
        parameters: the numbers p0, p1, ...
        jumps: a list to which it is added whether each jump was taken.

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

    def is_taken(operand: InstructionOperand, iterations: tuple[int, int]) -> bool:
        found = bool(_value(program, operand, arena, parameters, iterations).reshape(-1)[0] != 0)
        if jumps is not None:
            jumps.append(found)
        return found

    for position, instruction, iterations in executed(program, is_taken):
        if OPCODES[CODES[instruction.name]].kind == "control":
            continue
        view = view_of(program.registers[instruction.result], arena, iterations)
        operands = tuple(
            _value(program, operand, arena, parameters, iterations).copy() for operand in instruction.operands
        )
        window = program.windows[instruction.immediate] if program.windows else None
        try:
            _run(instruction, view, operands, buffers, window)
        except ArgumentError as problem:
            raise ArgumentError(f"{problem} (instruction {position})") from None
        yield SimulatedStep(instruction_text(program, instruction), operands, np.squeeze(view.copy()))


def executed(
    program: OpProgram, is_taken: Callable[[InstructionOperand, tuple[int, int]], bool]
) -> Iterator[ExecutedInstruction]:
    """The instructions of a legal program in the order in which they run.

    Args:
        program: checked.
        is_taken: whether a jump with this operand leads elsewhere, in these iterations of the loops.

    Raises:
        ArgumentError: it does not end within :data:`MOST_EXECUTED` instructions.
    """
    iterations, starts, position = [0] * COUNTERS, [0] * COUNTERS, 0
    for _ in range(MOST_EXECUTED):
        if position >= len(program.instructions):
            return
        instruction = program.instructions[position]
        now = iterations[0], iterations[1]
        yield ExecutedInstruction(position, instruction, now)
        counter = instruction.result
        if instruction.name == "loop":
            starts[counter], iterations[counter] = position, 0
        elif instruction.name == "end":
            iterations[counter] += 1
            if iterations[counter] < program.instructions[starts[counter]].immediate:
                position = starts[counter]
            else:
                iterations[counter] = 0
        elif instruction.name == "jump" and is_taken(instruction.operands[0], now):
            position = instruction.immediate - 1
        position += 1
    raise ArgumentError(f"[jump] the program runs more than {MOST_EXECUTED} instructions")


def run(
    words: Array,
    arena: Array,
    buffers: Sequence[Array] = (),
    parameters: Sequence[float] = (),
    jumps: list[bool] | None = None,
) -> None:
    """Run a program to its end; see :func:`steps`."""
    for _ in steps(words, arena, buffers, parameters, jumps):
        pass


def view_of(register: Register, arena: Array, iterations: Sequence[int] = (0, 0)) -> Array:
    """A register as an array of four axes on the arena's memory, in some iterations of the loops."""
    offset = register.offset + sum(n * step for n, step in zip(iterations, register.steps, strict=True))
    return np.lib.stride_tricks.as_strided(
        arena[offset:], register.sizes, [4 * stride for stride in register.strides]
    )


def _value(
    program: OpProgram,
    operand: InstructionOperand,
    arena: Array,
    parameters: Sequence[float],
    iterations: Sequence[int],
) -> Array:
    if operand.kind == "register":
        return view_of(program.registers[operand.position], arena, iterations)
    if operand.kind == "parameter":
        return np.array(parameters[operand.position], np.float32)
    return np.array(program.numbers[operand.position], np.uint32).view(np.float32)


def _run(
    instruction: Instruction,
    result: Array,
    operands: Sequence[Array],
    buffers: Sequence[Array],
    window: SlidingWindow | None,
) -> None:
    """
    Raises:
        ArgumentError: an index is out of range.
    """
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
        elif code.kind == "window":
            assert window is not None
            _run_window(code.name, result, operands, window)
        elif code.name == "iota":
            result[...] = operands[0] + np.arange(result.shape[-1])
        elif code.name == "check":
            result[...] = operands[0]
            checked_index(code.name, operands[0].view(np.int32), int(operands[1].max()))
        elif code.name == "pack_int8":
            scaled = np.round(operands[0] / operands[1])
            packed = np.clip(np.nan_to_num(scaled), -127, 127).astype(np.int8)
            result.view(np.int32)[...] = np.ascontiguousarray(packed).view(np.int32)
        elif code.name == "matmul_int8":
            a, b = operands[0].copy().view(np.int8), operands[1].swapaxes(-1, -2).copy().view(np.int8)
            total = a.astype(np.int32) @ b.astype(np.int32).swapaxes(-1, -2)
            start = operands[2].view(np.int32) if len(operands) > 2 else 0
            result.view(np.int32)[...] = total + start
        elif code.name == "one_hot":
            indices = operands[0].view(np.int32).reshape(-1, 1)
            result[0, 0] = indices == np.arange(result.shape[-1])
        elif code.name == "take_rows":
            indices = operands[1].view(np.int32).reshape(-1)
            checked_index(code.name, indices, operands[0].shape[2])
            result[0, 0] = np.where(indices[:, None] < 0, 0, operands[0][0, 0][indices])
        else:
            first = instruction.immediate
            outside = buffers[instruction.buffer][first : first + result.size]
            if code.name == "load":
                result.reshape(-1)[...] = outside
            else:
                outside[...] = result.reshape(-1)


def checked_index(name: str, indices: Array, size: int) -> None:
    """
    Raises:
        ArgumentError: an index is not within -1, which selects nothing, to `size` - 1.
    """
    wrong = indices[(indices < -1) | (indices >= size)]
    if wrong.size:
        raise ArgumentError(f"[{name}] index {wrong[0]} is out of range for an axis of size {size}")


def _run_window(name: str, result: Array, operands: Sequence[Array], window: SlidingWindow) -> None:
    """A convolution or pool: the sum or maximum over the elements of a window, one by one."""
    x = operands[0]
    rows, columns = (window.extent(axis, result.shape[2 + axis]) for axis in (0, 1))
    top, left = window.padding
    height, width = min(x.shape[2], rows - top), min(x.shape[3], columns - left)
    fill = -np.inf if name == "max_pool" else 0
    padded = np.full((*x.shape[:2], rows, columns), fill, np.float32)
    padded[:, :, top : top + height, left : left + width] = x[:, :, :height, :width]
    total = np.full(result.shape, fill, np.float32)
    for i, j in np.ndindex(*window.size):
        first, second = i * window.dilation[0], j * window.dilation[1]
        part = padded[
            :,
            :,
            first : first + (result.shape[2] - 1) * window.stride[0] + 1 : window.stride[0],
            second : second + (result.shape[3] - 1) * window.stride[1] + 1 : window.stride[1],
        ]
        if name == "max_pool":
            total = np.maximum(total, part)
        elif name == "sum_pool":
            total += part
        else:
            filters = operands[1][:, :, i, j]
            groups = x.shape[1] // filters.shape[1]
            split = part.reshape(len(part), groups, filters.shape[1], -1)
            total += (filters.reshape(groups, -1, filters.shape[1]) @ split).reshape(result.shape)
    result[...] = total + operands[2] if len(operands) > 2 else total
