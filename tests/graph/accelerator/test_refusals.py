"""Programs that would reach foreign memory: check and kernel refuse them, with the instruction's number."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.graph.accelerator import machine
from dl4all.graph.accelerator.machine import run_on_device
from dl4all.graph.op_codes import simulator
from dl4all.graph.op_codes.assembler import assemble
from dl4all.graph.op_codes.instruction import (
    Instruction,
    InstructionOperand,
    OpProgram,
    Register,
    Scratchpad,
    SlidingWindow,
    program_of,
    register,
    words_of,
)
from dl4all.graph.op_codes.validity import check_program
from tests.conftest import need
from tests.graph.accelerator.random_instructions import DRAM, SCRATCHPAD, ProgramWriter

START, WORDS = 64, 64
END = START + WORDS
TINY = float(np.finfo(np.float32).tiny)


def operand(position: int) -> InstructionOperand:
    return InstructionOperand("register", position)


def on(
    *registers: Register, instructions: tuple[Instruction, ...], windows: tuple[SlidingWindow, ...] = ()
) -> OpProgram:
    """A program whose second instruction is the wrong one."""
    fine = Register(START, (1, 1, 1, 1), (0, 0, 0, 0))
    first = Instruction("copy", len(registers), (operand(len(registers)),))
    return OpProgram((*registers, fine), (0,), (first, *instructions), windows, Scratchpad(START, WORDS))


def copy(result: Register, source: Register) -> OpProgram:
    return on(result, source, instructions=(Instruction("copy", 0, (operand(1),)),))


IMAGE, FILTER = register(START, (1, 4, 2, 2)), register(START, (2, 3, 1, 1))
WINDOW = SlidingWindow((1, 1))
HUGE = Register(START, (2**28, 1, 1, 8), (2**31, 0, 0, 1))
PROGRAMS = {
    "reads behind the scratchpad": copy(register(START, (8,)), register(END - 4, (8,))),
    "writes behind the scratchpad": copy(register(END - 4, (8,)), register(START, (8,))),
    "begins behind the scratchpad": copy(register(START, (8,)), register(2**31, (8,))),
    "is so large that its end overflows": copy(HUGE, register(START, (1,))),
    "leaves in a later iteration": on(
        register(START, (8,)), register(END - 16, (8,))._replace(steps=(8, 0)),
        instructions=(
            Instruction("loop", 0, immediate=3), Instruction("copy", 0, (operand(1),)), Instruction("end", 0),
        ),
    ),
    "has no such window": on(IMAGE, instructions=(Instruction("max_pool", 0, (operand(0),), immediate=3),)),
    "divides the channels wrongly": on(
        IMAGE, FILTER, register(START, (1, 2, 2, 2)),
        instructions=(Instruction("conv", 2, (operand(0), operand(1))),), windows=(WINDOW,),
    ),
    "reads filters behind the scratchpad": on(
        IMAGE, register(END - 4, (8, 4, 1, 1)), register(START, (1, 8, 2, 2)),
        instructions=(Instruction("conv", 2, (operand(0), operand(1))),), windows=(WINDOW,),
    ),
    "has a window of nothing": on(
        IMAGE, instructions=(Instruction("max_pool", 0, (operand(0),)),), windows=(SlidingWindow((0, 1)),)
    ),
    "multiplies more than there is": on(
        register(START, (4, 4)), register(START, (4, 32)), register(START, (32, 4), (16, 1)),
        instructions=(Instruction("matmul", 0, (operand(1), operand(2))),),
    ),
    "jumps behind the end": on(instructions=(Instruction("jump", 0, (operand(0),), immediate=9),)),
    "ends no loop": on(instructions=(Instruction("end", 1),)),
    "has a third counter": on(instructions=(Instruction("loop", 2, immediate=2), Instruction("end", 2))),
    "uses a counter twice": on(
        instructions=(
            Instruction("loop", 1, immediate=2), Instruction("loop", 1, immediate=2),
            Instruction("end", 1), Instruction("end", 1),
        )
    ),
    "takes a row that the table has not": on(
        register(START, (1, 2)), register(START + 8, (3, 2)), register(START + 20, (1,)),
        instructions=(Instruction("take_rows", 0, (operand(1), operand(2))),),
    ),
    "checks an index that is too large": on(
        register(START, (1,)), register(START + 20, (1,)),
        instructions=(Instruction("check", 0, (operand(1), InstructionOperand("number", 0))),),
    ),
}  # fmt: skip
WORDS_OF = {name: words_of(program) for name, program in PROGRAMS.items()}
WORDS_OF["has no such register"] = words_of(copy(register(START, (1,)), register(START, (1,))))
WORDS_OF["has no such register"][-3] = 9
LATER = {"leaves in a later iteration": 2, "uses a counter twice": 2}
"""The numbers of wrong instructions that are not the second one."""


def memory() -> npt.NDArray[np.float32]:
    words = np.ones(END, np.float32)
    words[START + 20] = np.array(7, np.int32).view(np.float32)  # an index that no table here has
    return words


@pytest.mark.parametrize("name", WORDS_OF)
def test_the_check_refuses(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"instruction {LATER.get(name, 1)}\b|r\d+ ends at word"):
        simulator.run(WORDS_OF[name], memory())


@pytest.mark.vulkan
@pytest.mark.parametrize("name", WORDS_OF)
def test_the_kernel_refuses_with_the_number(name: str) -> None:
    need("vulkan:0")
    before = memory()
    with pytest.raises(ArgumentError, match=rf"refuses instruction {LATER.get(name, 1)}: "):
        run_on_device(WORDS_OF[name], before, dl.device("vulkan:0"))


@pytest.mark.vulkan
def test_words_at_random_end_in_a_result_or_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel computes what the simulator does wherever the check lets a changed program pass."""
    need("vulkan:0")
    monkeypatch.setattr(machine, "DISPATCHES", 20)  # a changed loop may go round for very long
    device, rng = dl.device("vulkan:0"), np.random.default_rng(0)
    outcomes = {"refused": 0, "ran": 0}
    for seed in range(400):
        writer = ProgramWriter(seed)
        before = writer.memory()
        words = words_of(writer.write(5))
        for _ in range(rng.integers(1, 3)):
            at = rng.integers(6, len(words))
            words[at] = rng.choice([0, 1, 2, 255, 2**31, 2**32 - 1, rng.integers(2**32), words[at] + 1])
        got = before.copy()
        try:
            run_on_device(words, got, device)
            outcomes["ran"] += 1
        except ArgumentError as problem:
            outcomes["refused" if re.search("instruction|has not ended", str(problem)) else "other"] += 1
            continue
        try:
            check_program(program_of(words), DRAM + SCRATCHPAD)
        except ArgumentError:
            continue
        if (words_of(program_of(words)) != words).any():
            continue  # flags that do not follow from the registers
        expected = before.copy()
        simulator.run(words, expected)
        same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
        same |= (abs(got) < TINY) & (abs(expected) < TINY)  # which a device may flush to 0
        assert same.all(), f"seed {seed}: words {np.flatnonzero(~same)}"
    assert min(outcomes.values()) > 50


@pytest.mark.vulkan
def test_a_program_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    need("vulkan:0")
    words = assemble("r0: @0 [1]\nadd r0, r0, #1\njump #1, 0")
    monkeypatch.setattr(machine, "DISPATCHES", 4)
    with pytest.raises(ArgumentError, match="has not ended after 4 dispatches"):
        run_on_device(words, np.zeros(4, np.float32), dl.device("vulkan:0"))
    monkeypatch.setattr(simulator, "MOST_EXECUTED", 1000)
    with pytest.raises(ArgumentError, match="runs more than 1000 instructions"):
        simulator.run(words, np.zeros(4, np.float32))


@pytest.mark.vulkan
def test_a_sum_that_no_dispatch_can_finish() -> None:
    need("vulkan:0")
    if dl.device("vulkan:0").info.type != "software":
        pytest.skip("only software drivers end long loops")
    text = "r0: @0 [1, 1]\nr1: @4 [1, 200000]\nr2: @4 [200000, 1]\nmatmul r0, r1, r2"
    with pytest.raises(
        ArgumentError, match=r"ends loops after \d+ rounds, too few for instruction 0: matmul"
    ):
        run_on_device(assemble(text), np.ones(200_004, np.float32), dl.device("vulkan:0"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add r1, r0, r1", "computes in the scratchpad, words 64 to 128, and word 0 is in DRAM; copy it"),
        ("copy r2, r1", "lie across DRAM and scratchpad"),
        ("copy r3, r1", "repeats elements and cannot be a result"),
        ("copy r5, #1", "lies over itself"),
        ("copy r4, r1", "lies over a part of an operand"),
        ("load r1, b0", "an accelerator has no tensors outside; use copy"),
    ],
)
def test_computing_happens_in_the_scratchpad(line: str, message: str) -> None:
    head = "scratchpad: @64 [64]\nr0: @0 [8]\nr1: @64 [8]\nr2: @60 [8]\nr3: @80 [8] / [0]\n"
    head += "r4: @65 [8]\nr5: @80 [2, 4] / [2, 1]\n"
    with pytest.raises(ArgumentError, match=re.escape(message)):
        check_program(program_of(assemble(head + line)), 128)
