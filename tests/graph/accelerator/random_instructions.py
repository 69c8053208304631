"""Random programs of the accelerator: legal ones, with data on which all sums are exact.

Elements are small whole numbers, so that products and sums of any order have the same bits. Where a function
such as exp has rounded, later instructions cannot be compared bit for bit: programs have none of those.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dl4all.graph.op_codes.instruction import (
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    Scratchpad,
    SlidingWindow,
    contiguous,
)
from dl4all.graph.op_codes.opcode import OPCODES, Opcode

DRAM, SCRATCHPAD = 512, 2048
EXACT = (
    "copy",
    "neg",
    "abs",
    "sign",
    "floor",
    "relu",
    "add",
    "sub",
    "max",
    "min",
    "eq",
    "lt",
    "le",
    "select",
)
CHOSEN = [
    code
    for code in OPCODES
    if code.name in EXACT or code.kind in ("window", "packed", "rows", "index") or code.name == "matmul"
    or code.name in ("row_sum", "row_max")
]  # fmt: skip
MOST = 64.0
"""Magnitude that the program is brought back to, so that sums stay exact."""


class ProgramWriter:
    """A program in the making, on memory whose contents are whole numbers."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._registers: list[Register] = []
        self._numbers: list[int] = []
        self._windows: list[SlidingWindow] = []
        self._instructions: list[Instruction] = []
        self._next = DRAM

    def memory(self) -> npt.NDArray[np.float32]:
        """The memory before the program: whole numbers, and ints in the first quarter of DRAM."""
        memory = self._rng.integers(-4, 5, DRAM + SCRATCHPAD).astype(np.float32)
        memory[: DRAM // 4] = self._rng.integers(-1, 3, DRAM // 4).astype(np.int32).view(np.float32)
        return memory

    def write(self, count: int) -> OpProgram:
        """A program of about so many instructions."""
        depth = 0
        for _ in range(count):
            self._next = DRAM
            if self._rng.random() < 0.1 and depth < 2:
                self._instructions.append(Instruction("loop", depth, immediate=self._size(4)))
                depth += 1
            elif self._rng.random() < 0.1 and depth:
                depth -= 1
                self._instructions.append(Instruction("end", depth))
            else:
                self._append(CHOSEN[self._rng.integers(len(CHOSEN))])
        self._instructions += [Instruction("end", one) for one in reversed(range(depth))]
        self._add_jump()
        return OpProgram(
            tuple(self._registers), tuple(self._numbers), tuple(self._instructions), tuple(self._windows),
            Scratchpad(DRAM, SCRATCHPAD),
        )  # fmt: skip

    def _add_jump(self) -> None:
        """A jump over the last instruction, if that stands in no loop."""
        if self._instructions and self._instructions[-1].name not in ("end", "loop"):
            operand = self._number(float(self._rng.integers(0, 2)))
            jump = Instruction("jump", 0, (operand,), immediate=len(self._instructions) + 1)
            self._instructions.insert(-1, jump)

    def _size(self, most: int = 5) -> int:
        return int(self._rng.integers(1, most + 1))

    def _register(self, *sizes: int, space: str = "scratchpad") -> Register:
        four = (1,) * (4 - len(sizes)) + sizes
        own = (four[0], four[1], four[2], four[3])
        words = int(np.prod(own))
        turned = self._rng.random() < 0.3
        order = self._rng.permutation(4) if turned else np.arange(4)
        packed = contiguous(tuple(own[axis] for axis in order))  # type: ignore[arg-type]
        strides = [0, 0, 0, 0]
        for place, axis in enumerate(order):
            strides[axis] = packed[place]
        step = int(self._rng.integers(0, 3))
        if space == "ints":
            offset, steps = int(self._rng.integers(0, DRAM // 4 - words + 1)), (0, 0)
        elif space == "dram":
            offset, steps = DRAM // 4 + int(self._rng.integers(0, DRAM // 8)), (step, 0)
        else:
            offset, steps = self._next, (step, int(self._rng.integers(0, 3)))
            self._next += words + 16
        return Register(offset, own, (strides[0], strides[1], strides[2], strides[3]), steps)

    def _place(self, register: Register) -> InstructionOperand:
        self._registers.append(register)
        return InstructionOperand("register", len(self._registers) - 1)

    def _number(self, value: float) -> InstructionOperand:
        self._numbers.append(int(np.float32(value).view(np.uint32)))
        return InstructionOperand("number", len(self._numbers) - 1)

    def _operand(self, *sizes: int) -> InstructionOperand:
        if self._rng.random() < 0.2:
            return self._number(float(self._rng.integers(-3, 4)))
        return self._place(self._register(*(n if self._rng.random() < 0.7 else 1 for n in sizes)))

    def _fresh(self, *sizes: int) -> InstructionOperand:
        """New contents from DRAM: small whole numbers."""
        target = self._register(*sizes)
        source = self._register(*sizes, space="dram")
        self._run("copy", target, self._place(source))
        return self._place(target)

    def _run(self, name: str, result: Register, *operands: InstructionOperand, window: int = 0) -> None:
        place = self._place(result).position
        self._instructions.append(Instruction(name, place, operands, immediate=window))

    def _append(self, code: Opcode) -> None:
        rows, depth, columns, batch = (self._size() for _ in range(4))
        if code.kind == "window":
            self._append_window(code)
        elif code.kind == "product":
            read = [self._fresh(batch, rows, depth), self._fresh(batch, depth, columns)]
            if self._rng.random() < 0.5:
                read.append(self._fresh(batch, rows, columns))
            self._run(code.name, self._register(batch, rows, columns), *read)
        elif code.name == "matmul_int8":  # any words are four bytes
            result = self._register(rows, columns)
            self._run(code.name, result, self._fresh(rows, depth), self._fresh(depth, columns))
            self._run("copy", result, self._number(1.0))
        elif code.name == "pack_int8":
            result = self._register(rows, columns)
            self._run(code.name, result, self._fresh(rows, 4 * columns), self._number(0.5))
            self._run("copy", result, self._number(2.0))
        elif code.kind == "reduction":
            self._run(code.name, self._register(batch, rows, 1), self._fresh(batch, rows, depth))
        elif code.kind == "rows":
            ints = self._register(rows)
            self._run("copy", ints, self._place(self._register(rows, space="ints")))
            index = self._place(ints)
            operands = [index] if code.name == "one_hot" else [self._fresh(3, columns), index]
            self._run(code.name, self._register(rows, columns), *operands)
            self._run("copy", ints, self._number(0.0))
        elif code.name == "check":
            ints = self._register(rows)
            self._run("copy", ints, self._place(self._register(rows, space="ints")))
            self._run("check", ints, self._place(ints), self._number(3.0))
            self._run("copy", ints, self._number(0.0))
        elif code.name == "iota":
            self._run("iota", self._register(rows, columns), self._operand(rows, columns))
        else:
            sizes = (batch, rows, columns)
            operands = [self._operand(*sizes) for _ in range(code.operands)]
            result = self._register(*sizes)
            self._run(code.name, result, *operands)
            bounded = self._place(result)
            self._run("min", result, bounded, self._number(MOST))
            self._run("max", result, bounded, self._number(-MOST))
            if self._rng.random() < 0.3:
                self._run("copy", self._register(*sizes, space="dram"), bounded)

    def _append_window(self, code: Opcode) -> None:
        size, stride = (self._size(3), self._size(3)), (self._size(3), self._size(3))
        dilation = (self._size(2), self._size(2))
        extents = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
        padding = (int(self._rng.integers(0, extents[0] + 1)), int(self._rng.integers(0, extents[1] + 1)))
        self._windows.append(SlidingWindow(size, stride, padding, dilation))
        height, width, batch = self._size(), self._size(), self._size(2)
        groups, channels, filters = self._size(2), self._size(2), self._size(2)
        out = [(n - 1 + padding[axis]) // stride[axis] + 1 for axis, n in enumerate((height, width))]
        read = [self._fresh(batch, groups * channels, height, width)]
        made = groups * channels
        if code.name == "conv":
            made = groups * filters
            read.append(self._fresh(made, channels, *size))
            if self._rng.random() < 0.5:
                read.append(self._number(float(self._rng.integers(-3, 4))))
        self._run(code.name, self._register(batch, made, *out), *read, window=len(self._windows) - 1)
