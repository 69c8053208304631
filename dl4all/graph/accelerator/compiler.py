"""From a call to a program of the accelerator: traced, taken apart into instructions, and cut into tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.groups import grouped
from dl4all.graph.accelerator.loops import ProgramBuilder, rolled
from dl4all.graph.accelerator.model import Hardware
from dl4all.graph.accelerator.op_rules import RULES
from dl4all.graph.accelerator.tile_sizes import ALIGNMENT, aligned
from dl4all.graph.accelerator.tiles import tile_lines
from dl4all.graph.ir.graph import Graph, HostCall, Node, Operand, Value
from dl4all.graph.op_codes.choice import SINGLE_OPS
from dl4all.graph.op_codes.emitter import Emitter, Unsupported
from dl4all.graph.op_codes.instruction import OpProgram, Register, Scratchpad
from dl4all.graph.op_codes.op_rules import emit_node
from dl4all.graph.op_codes.validity import check_program
from dl4all.graph.passes import pipeline
from dl4all.graph.tracing.trace import Tracer, traced
from dl4all.ops.core.tensor_base import TensorBase

CHECK = "check_indices"
"""The work of the host that makes places of a table's rows from indices of any integer type."""


class Placed(NamedTuple):
    """Words of DRAM that hold a buffer of the graph."""

    buffer: int
    start: int
    words: int


class CompiledCall(NamedTuple):
    """A program, and what lies where in its memory.

    ``preparations`` are the work of the host before the program runs: indices become places of rows.
    """

    program: OpProgram
    ops: tuple[str, ...]  # of each instruction: the one that it is a part of
    graph: Graph
    tracer: Tracer
    placed: tuple[Placed, ...]
    arguments: tuple[Operand, ...]
    results: tuple[tuple[Register, Operand], ...]
    preparations: tuple[HostCall, ...]
    is_single: bool


def compile_call(function: Callable[..., Any], args: Sequence[Any], hardware: Hardware) -> CompiledCall:
    """The program of a call with tensors like these on the CPU.

    Raises:
        ArgumentError: tensors lie on another device, or an op has no instructions; it names the op.
    """
    if any(isinstance(one, TensorBase) and not one.device.is_host for one in args):
        raise ArgumentError(
            "[accelerator_model] compiles calls with tensors on the CPU, the host of the accelerator; "
            'move model and inputs by .to("cpu")'
        )
    whole, tracer, result = traced(function, *args)
    arguments = tuple(
        replace(tracer.operand(one), value=Value(tracer.number_of(one), 0))
        for one in args
        if isinstance(one, TensorBase)
    )
    graph = pipeline.run(whole, set(pipeline.NAMES).difference(SINGLE_OPS))
    emitter = Emitter(graph)
    preparations: list[HostCall] = []
    for node in graph.nodes:
        if _is_preparation(graph, node):
            [command] = node.commands
            assert isinstance(command, HostCall)
            preparations.append(command)
            continue
        first = len(emitter.lines)
        try:
            emit_node(emitter, node, RULES)
        except Unsupported as problem:
            raise ArgumentError(
                f"[accelerator_model] the op {node.op or node.name} has no instructions: it {problem}"
                + (f" ({node.line})" if node.line else "")
            ) from None
        emitter.lines[first:] = [line._replace(op=node.op or node.name) for line in emitter.lines[first:]]
    results = tuple((emitter.view(one), one) for one in graph.outputs)
    for one in graph.outputs:
        emitter.read(one.value.buffer)
    start = aligned(max(emitter.words, 1))
    scratchpad = Scratchpad(start, hardware.words // ALIGNMENT * ALIGNMENT)
    builder = ProgramBuilder()
    varying = {*graph.inputs, *(b.buffer for work in preparations for b in work.bindings)}
    inputs = [t.register for number in varying for t in emitter.pieces.get(number, ())]
    for group in grouped(emitter.lines, inputs, [register for register, _ in results], hardware):
        for tile in rolled(list(tile_lines(group, hardware, scratchpad))):
            builder.add(tile)
    program = builder.program(scratchpad)
    check_program(program, scratchpad.end)
    placed = tuple(
        Placed(number, pieces[0].register.offset, pieces[0].register.elements)
        for number, pieces in emitter.pieces.items()
    )
    return CompiledCall(
        program, tuple(builder.ops), graph, tracer, placed, arguments, results, tuple(preparations),
        isinstance(result, TensorBase),
    )  # fmt: skip


def _is_preparation(graph: Graph, node: Node) -> bool:
    """Whether the host makes indices ready, as the accelerator has no ints of 64 bits."""
    given = all(graph.buffers[value.buffer].kind in ("input", "constant", "captured") for value in node.reads)
    return not node.op and node.name == CHECK and given and isinstance(node.commands[0], HostCall)
