"""Random programs: the kernel on a device and the simulator agree bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.graph.accelerator.machine import run_on_device
from dl4all.graph.op_codes import simulator
from dl4all.graph.op_codes.disassembler import disassemble
from dl4all.graph.op_codes.instruction import words_of
from tests.conftest import need
from tests.graph.accelerator.random_instructions import ProgramWriter
from tests.support.subcases import FULL

PROGRAMS = 50_000 if FULL else 2_000
BLOCK = 250


@pytest.mark.vulkan
@pytest.mark.parametrize("block", range(PROGRAMS // BLOCK))
def test_the_kernel_computes_what_the_simulator_does(block: int) -> None:
    need("vulkan:0")
    device = dl.device("vulkan:0")
    executed = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        writer = ProgramWriter(seed)
        memory = writer.memory()
        words = words_of(writer.write(10))
        expected, got = memory.copy(), memory.copy()
        simulator.run(words, expected)
        run_on_device(words, got, device)
        executed += int((expected.view(np.uint32) != memory.view(np.uint32)).sum())
        wrong = np.flatnonzero(expected.view(np.uint32) != got.view(np.uint32))
        assert not wrong.size, f"seed {seed}: words {wrong[:5]} differ\n{disassemble(words)}"
    assert executed > 100 * BLOCK  # words that the programs have written
