"""The costs of programs, and whether they are worth their while.

The figures are those of Mesa's llvmpipe on one processor (`benchmarks/op_codes.py` measures such). On a GPU a
program has one of its many workgroups, and dispatches cost less; as nobody has measured one, no program is
taken to be worth its while there.
"""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.graph.ir.graph import Graph
from dl4all.graph.op_codes.instruction import OpProgram, Register
from dl4all.graph.op_codes.interpreter import InterpreterVariant
from dl4all.graph.op_codes.opcode import CODES, OPCODES
from dl4all.ops.core.kernels.launch import ceil_div
from dl4all.runtime.device_info import DeviceInfo

DISPATCH = 5.5e-6
"""Seconds of a dispatch in a recording, apart from its work."""
CLEAR_WIN = 0.9
"""Share of the time of kernels that programs may take at most, as the figures are estimates."""
COSTS = {
    "flat": (0.25e-6, 0.07e-6),
    "strided": (1.5e-6, 0.12e-6),
    "function": (1.5e-6, 0.4e-6),
    "reduction": (1.5e-6, 0.05e-6),
    "product": (1.5e-6, 0.035e-6),
    "rows": (1.5e-6, 0.1e-6),
    "transfer": (0.35e-6, 0.03e-6),
}
"""Seconds of an instruction, and of a round of its loop."""


def rounds_of(name: str, y: Register, a: Register | None, variant: InterpreterVariant) -> int:
    """The rounds of all loops of an invocation in an instruction with result `y` and first operand `a`.

    >>> from dl4all.graph.op_codes.instruction import register
    >>> rounds_of("add", register(0, (100,)), None, InterpreterVariant(6, 8, 0))
    14
    """
    kind = OPCODES[CODES[name]].kind
    invocations, tile = variant.invocations, variant.tile
    if kind == "reduction" and a is not None:
        return 1 + ceil_div(a.elements, invocations) + 8 * ceil_div(y.elements, invocations)
    if kind == "product" and a is not None:
        if not tile:
            return 1 + ceil_div(y.elements, invocations) * (1 + a.sizes[3])
        tiles = y.sizes[0] * y.sizes[1] * ceil_div(y.sizes[2], tile) * ceil_div(y.sizes[3], tile)
        parts = tile * tile // invocations
        return 1 + tiles * (1 + 2 * parts + ceil_div(a.sizes[3], tile) * (1 + parts + tile * (1 + parts)))
    return 1 + ceil_div(y.elements, invocations)


def program_seconds(program: OpProgram, variant: InterpreterVariant) -> float:
    """The estimated seconds of a program's instructions on a software driver, without dispatches."""
    total = 0.0
    for instruction in program.instructions:
        kind = str(OPCODES[CODES[instruction.name]].kind)
        registers = [program.registers[o.position] for o in instruction.operands if o.kind == "register"]
        y = program.registers[instruction.result]
        if kind == "arithmetic":
            kind = "flat" if all(r.strides in (y.strides, (0, 0, 0, 0)) for r in registers) else "strided"
        fixed, each = COSTS[kind]
        total += fixed + each * rounds_of(instruction.name, y, registers[0] if registers else None, variant)
    return total


def is_measured(info: DeviceInfo) -> bool:
    """Whether the figures are those of a device."""
    return info.type == "software"


def is_worthwhile(
    compiled: Graph,
    lowered: Graph,
    programs: Sequence[OpProgram],
    variant: InterpreterVariant,
    info: DeviceInfo,
) -> bool:
    """Whether programs are faster than kernels.

    Args:
        compiled: what would run otherwise, with all passes.
        lowered: the same call with programs (:func:`dl4all.graph.op_codes.translator.lower`).
        programs: those.
        variant: of the interpreter.
        info: of the device.
    """
    if not is_measured(info) or not programs:
        return False
    seconds = DISPATCH * _commands(lowered) + sum(program_seconds(one, variant) for one in programs)
    return seconds < CLEAR_WIN * DISPATCH * _commands(compiled)


def _commands(graph: Graph) -> int:
    return sum(len(node.commands) for node in graph.nodes)
