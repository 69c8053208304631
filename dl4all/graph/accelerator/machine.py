"""Runs of programs on a device: the interpreter kernel, dispatched until the program is at its end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.graph.op_codes.disassembler import instruction_text
from dl4all.graph.op_codes.instruction import PARAMETERS, Array, program_of
from dl4all.graph.op_codes.interpreter import INTERPRETERS, accelerator_for
from dl4all.ops.core.kernels.launch import MAX_LOOP_ROUNDS, pack
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

REFUSED, TOO_DEEP = 2, 3
STATE_WORDS = 9
MOST_AT_ONCE = 64
"""Dispatches between two looks at the state."""
DISPATCHES = 1 << 20
"""The most of them, so that a program whose jumps go round for ever ends."""


def run_on_device(words: npt.NDArray[np.uint32], memory: Array, device: Device) -> None:
    """Run a program on a device.

    Args:
        words: of the program; they are checked by the kernel alone.
        memory: float32, one axis: DRAM and scratchpad. It is changed.
        device: it runs programs.

    Raises:
        ArgumentError: the kernel has refused an instruction, or the program does not end.
    """
    variant = accelerator_for(device.info)
    state = np.zeros(STATE_WORDS, np.uint32)
    storages = [device.upload(array) for array in (words, memory, state)]
    push = pack(len(memory), MAX_LOOP_ROUNDS, *[0.0] * PARAMETERS)
    launch = Launch(INTERPRETERS[variant], (1, 1, 1), push)
    dispatches, at_once = 0, 1
    while not state[0]:
        if dispatches > DISPATCHES:
            raise ArgumentError(f"[accelerator] the program has not ended after {DISPATCHES} dispatches")
        for _ in range(at_once):  # those behind the end of the program do nothing
            device.launch(launch, *storages)
        device.download(storages[2], state)
        dispatches, at_once = dispatches + at_once, min(2 * at_once, MOST_AT_ONCE)
    device.download(storages[1], memory)
    if state[0] in (REFUSED, TOO_DEEP):
        why = "refuses" if state[0] == REFUSED else f"ends loops after {MAX_LOOP_ROUNDS} rounds, too few for"
        raise ArgumentError(
            f"[accelerator] the device {why} instruction {state[1]}: {_text(words, state[1])}"
        )


def _text(words: npt.NDArray[np.uint32], position: int) -> str:
    try:
        program = program_of(words)
        return instruction_text(program, program.instructions[position])
    except (ArgumentError, IndexError):
        return "its words are no instruction"
