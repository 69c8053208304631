"""Waits, and dispatches that reach few tensors."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

from dl4all.graph.op_codes.emitter import Line, Transfer
from dl4all.graph.op_codes.instruction import Instruction, OpProgram, Register, register
from dl4all.graph.op_codes.interpreter import VARIANTS, InterpreterVariant
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.graph.op_codes.schedule import ScheduledDispatch, ScheduleStep, scheduled, steps_of
from dl4all.graph.op_codes.translator import lower
from dl4all.ops.core.kernels.launch import MAX_LOOP_ROUNDS
from tests.support.traced_graphs import traced

PROCESSOR, GPU = VARIANTS[2], VARIANTS[3]
Touch = tuple[int, str]  # an invocation, -1 for any, and "r" or "w"


def _words(view: Register) -> list[int]:
    places = itertools.product(*map(range, view.sizes))
    return [view.offset + int(np.dot(place, view.strides)) for place in places]


def _spread(view: Register, sizes: tuple[int, ...]) -> list[int]:
    strides = (0 if own == 1 else stride for own, stride in zip(view.sizes, view.strides, strict=True))
    return _words(Register(view.offset, tuple(sizes), tuple(strides)))  # type: ignore[arg-type]


def races(
    program: OpProgram, variant: InterpreterVariant, dispatches: tuple[ScheduledDispatch, ...]
) -> list[str]:
    """Instructions that touch words of other invocations without a wait in between, word by word."""
    found = []
    starts = {dispatch.first for dispatch in dispatches}
    touched: dict[tuple[int, int], set[Touch]] = defaultdict(set)
    for position, instruction in enumerate(program.instructions):
        if instruction.wait or position in starts:
            touched.clear()
        now = _touches(program, instruction, variant.invocations)
        for place, touches in now.items():
            for (one, kind), (other, before) in itertools.product(touches, touched[place]):
                if "w" in (kind, before) and (one != other or one < 0):
                    found.append(f"{position}: {instruction.name}")
        for place, touches in now.items():
            touched[place] |= touches
    return found


def _touches(
    program: OpProgram, instruction: Instruction, invocations: int
) -> dict[tuple[int, int], set[Touch]]:
    """Who touches which words; the space is -1 for the arena."""
    found: dict[tuple[int, int], set[Touch]] = defaultdict(set)
    kind, y = OPCODES[CODES[instruction.name]].kind, program.registers[instruction.result]
    operands = [program.registers[o.position] for o in instruction.operands if o.kind == "register"]
    if kind == "transfer":
        inside, outside = ("w", "r") if instruction.name == "load" else ("r", "w")
        for i, word in enumerate(_words(y)):
            found[-1, word].add((i % invocations, inside))
            found[instruction.buffer, instruction.immediate + i].add((i % invocations, outside))
        return found
    together = kind not in ("arithmetic", "function")
    for operand in operands:
        for i, word in enumerate(_words(operand) if together else _spread(operand, y.sizes)):
            found[-1, word].add((-1 if together else i % invocations, "r"))
    for i, word in enumerate(_words(y)):
        found[-1, word].add((-1 if together else i % invocations, "w"))
    return found


@pytest.mark.parametrize("variant", [PROCESSOR, GPU, VARIANTS[0]], ids=str)
@pytest.mark.parametrize("case", ["forward mlp", "training mlp"])
def test_no_invocation_reads_what_another_may_not_have_written(
    case: str, variant: InterpreterVariant
) -> None:
    lowered = lower(traced(case), variant)
    assert lowered.programs
    for node, program in zip(
        (node for node in lowered.graph.nodes if node.name == "op codes"), lowered.programs, strict=True
    ):
        bounds = [
            np.frombuffer(command.launch.push[:8], np.uint32).tolist()  # type: ignore[union-attr]
            for command in node.commands
        ]
        dispatches = tuple(ScheduledDispatch(first, last, ()) for first, last in bounds)
        assert [d.first for d in dispatches[1:]] == [d.last for d in dispatches[:-1]]
        assert dispatches[-1].last == len(program.instructions)
        assert not races(program, variant, dispatches)
        waits = sum(instruction.wait for instruction in program.instructions)
        assert waits < 0.6 * len(program.instructions)


def test_what_needs_no_wait() -> None:
    """Invocations find what they have written themselves: also from number to number, and across updates."""
    x, y, row = register(0, (3, 50)), register(200, (3, 50)), register(400, (50,))
    steps = [
        ScheduleStep("load", register(0, (150,)), (), 7, 0),
        ScheduleStep("mul", x, (x, 2.0)),
        ScheduleStep("add", y, (x, row)),
        ScheduleStep("exp", y, (y,)),
        ScheduleStep("add", x, (y, x)),
        ScheduleStep("store", register(0, (150,)), (), 7, 0),
    ]
    program, dispatches = scheduled(steps, GPU)
    assert not any(instruction.wait for instruction in program.instructions)
    assert not races(program, GPU, dispatches)


@pytest.mark.parametrize(
    "second",
    [
        ScheduleStep("add", register(200, (4, 4)), (register(0, (4, 4), (1, 4)), 1.0)),  # read transposed
        ScheduleStep("add", register(200, (4, 4)), (register(0, (4,)), 1.0)),  # read as one row of all
        ScheduleStep("add", register(16, (4, 4)), (register(200, (4, 4)), 1.0)),  # over what others read
        ScheduleStep("add", register(3, (4, 4)), (register(200, (4, 4)), 1.0)),  # over what others wrote
        ScheduleStep("row_sum", register(200, (4, 1)), (register(0, (4, 4)),)),
        ScheduleStep("matmul", register(0, (4, 4)), (register(200, (4, 4)), register(300, (4, 4)))),
        ScheduleStep("store", register(2, (3,)), (), 1, 0),
    ],
    ids=lambda step: str(step.name),
)
def test_what_needs_a_wait(second: ScheduleStep) -> None:
    first = ScheduleStep("add", register(0, (4, 4)), (register(16, (4, 4), (1, 4)), 1.0))
    program, _ = scheduled([first, second], GPU)
    assert [instruction.wait for instruction in program.instructions] == [False, True]


def test_transfers_wait_for_each_other_outside() -> None:
    steps = [
        ScheduleStep("store", register(0, (9,)), (), 3, 0),
        ScheduleStep("load", register(20, (9,)), (), 3, 4),
    ]
    program, dispatches = scheduled(steps, GPU)
    assert [instruction.wait for instruction in program.instructions] == [False, True]
    assert not races(program, GPU, dispatches)


def _transfers(*buffers: int) -> list[Transfer]:
    return [Transfer(number, 0, register(10 * number, (10,))) for number in buffers]


@pytest.mark.parametrize("variant", [VARIANTS[0], PROCESSOR], ids=str)
def test_dispatches_reach_what_they_transfer(variant: InterpreterVariant) -> None:
    """What is loaded and stored shares the dispatch of the instructions, if there is room."""
    lines = [Line("mul", register(0, (90,)), (register(0, (90,)), 2.0))]
    steps = steps_of(lines, _transfers(*range(5)), _transfers(7, 1, 8), variant.buffers)
    assert [step.buffer for step in steps] == [0, 2, 3, 4, 1, -1, 1, 7, 8]
    program, dispatches = scheduled(steps, variant)
    for first, last, buffers in dispatches:
        part = program.instructions[first:last]
        used = [
            (buffers[one.buffer], steps[first + position].buffer)
            for position, one in enumerate(part)
            if one.name != "mul"
        ]
        assert all(bound == wanted for bound, wanted in used)
        assert len(set(buffers)) == len(buffers) <= variant.buffers
    assert len(dispatches) == (2 if variant.buffers == 6 else 4)


def test_long_loops_are_spread_over_dispatches() -> None:
    """llvmpipe leaves loops after some number of rounds, of all loops of a dispatch."""
    big = register(0, (8 * 20_000,))
    steps = [ScheduleStep("mul", big, (big, 2.0))] * 7
    _, dispatches = scheduled(steps, PROCESSOR)
    assert [dispatch.last - dispatch.first for dispatch in dispatches] == [2, 2, 2, 1]
    assert MAX_LOOP_ROUNDS < 3 * 20_001
    _, dispatches = scheduled(steps, GPU)
    assert len(dispatches) == 1
