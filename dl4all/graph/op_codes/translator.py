"""Translates nodes of a graph to programs that the interpreter runs.

Nodes that have instructions, and follow each other, become one node, whose commands are a few dispatches of
the interpreter. The others stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dl4all.errors import ArgumentError
from dl4all.graph.ir.graph import (
    Binding,
    BoundLaunch,
    Graph,
    GraphBuffer,
    Node,
    Value,
    bound_bytes,
    buffers_of,
)
from dl4all.graph.op_codes.emitter import Emitter, Transfer, Unsupported
from dl4all.graph.op_codes.instruction import OpProgram, words_of
from dl4all.graph.op_codes.interpreter import PUSH_WORDS, InterpreterVariant, launch_of
from dl4all.graph.op_codes.op_rules import emit_node
from dl4all.graph.op_codes.optimizer_rules import emit_updates, is_update, reserve_updates, update_of
from dl4all.graph.op_codes.schedule import ScheduledDispatch, scheduled, steps_of
from dl4all.graph.op_codes.validity import check_program

FEWEST = 2
"""Nodes that are worth a program."""


@dataclass(frozen=True)
class Lowered:
    """A graph in which runs of nodes are programs.

    ``reasons`` say why the other nodes are none, by their position in the graph before.
    """

    graph: Graph
    programs: tuple[OpProgram, ...]
    reasons: dict[int, str]


def lower(graph: Graph, variant: InterpreterVariant) -> Lowered:
    """Replace runs of nodes by programs for an interpreter.

    Programs are constants, whose bytes the graph holds.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.graph.op_codes.disassembler import disassemble
        >>> from dl4all.graph.op_codes.interpreter import VARIANTS
        >>> from dl4all.graph.tracing.trace import trace
        >>> graph = trace(lambda x: (x * 2).relu(), dl.ones(3, device="null:0"))
        >>> [program] = lower(graph, VARIANTS[0]).programs
        >>> print(disassemble(words_of(program)), end="")
        r0: @0 [3]
        r1: @3 [3]
        r2: @6 [3]
        load r0, b0
        mul r1, r0, #2.0
        relu r2, r1
        store r2, b1
    """
    reasons = {position: why for position, node in enumerate(graph.nodes) if (why := reason(graph, node))}
    runs = _runs(graph, reasons)
    numbers = itertools.count(max(graph.buffers, default=-1) + 1)
    buffers, contents, programs = dict(graph.buffers), dict(graph.contents), list[OpProgram]()
    nodes: list[Node] = []
    for run in runs:
        if len(run) < FEWEST or reasons.keys() & set(run):
            nodes += [graph.nodes[position] for position in run]
            continue
        try:
            program, emitter, dispatches = _program(graph, run, variant)
        except Unsupported as problem:
            reasons.update(dict.fromkeys(run, str(problem)))
            nodes += [graph.nodes[position] for position in run]
            continue
        code, arena = next(numbers), next(numbers)
        words = words_of(program)
        buffers[code] = GraphBuffer(code, words.nbytes, "constant", "program")
        buffers[arena] = GraphBuffer(arena, 4 * emitter.words, "temporary", "arena of the program")
        contents[code] = words.tobytes()
        programs.append(program)
        commands = tuple(_launch(graph, d, emitter, variant, code, arena, buffers) for d in dispatches)
        nodes.append(_node(graph, run, commands, code, arena))
    lowered = replace(graph, buffers=buffers, contents=contents).with_nodes(nodes)
    return Lowered(lowered, tuple(programs), reasons)


def reason(graph: Graph, node: Node) -> str:
    """Why a node has no instructions; empty if it has."""
    try:
        emit_node(Emitter(graph), node)
    except Unsupported as problem:
        return str(problem)
    return ""


def _runs(graph: Graph, reasons: dict[int, str]) -> list[list[int]]:
    """The nodes in an order in which those with instructions follow each other as far as they may."""
    runs: list[list[int]] = []
    run: list[int] = []
    for position, node in enumerate(graph.nodes):
        if position not in reasons:
            run.append(position)
        elif any(_depend(graph.nodes[other], node) for other in run):
            runs += [run, [position]]
            run = []
        else:
            runs.append([position])  # it may as well come before
    return [*runs, run] if run else runs


def _depend(first: Node, second: Node) -> bool:
    """Whether the order of two nodes matters."""
    changed = [{value.buffer for value in node.writes} for node in (first, second)]
    return bool(changed[0] & buffers_of(second) or changed[1] & buffers_of(first))


def _program(
    graph: Graph, run: Sequence[int], variant: InterpreterVariant
) -> tuple[OpProgram, Emitter, tuple[ScheduledDispatch, ...]]:
    """The program of a run of nodes.

    Raises:
        Unsupported: there is none.
    """
    emitter = Emitter(graph)
    groups = [
        list(group)
        for _, group in itertools.groupby(
            (graph.nodes[position] for position in run),
            key=lambda node: update_of(node).key if is_update(node) else id(node),
        )
    ]
    for group in groups:
        if is_update(group[0]):
            reserve_updates(emitter, group)
    for group in groups:
        if is_update(group[0]) and _side_by_side(emitter, group):
            emit_updates(emitter, group)
        else:
            for node in group:
                emit_node(emitter, node)
    outside = _outside(graph, run)
    loads = _transfers(emitter, [number for number in emitter.loads if number in outside])
    stores = _transfers(emitter, [number for number in emitter.written if number in outside])
    program, dispatches = scheduled(steps_of(emitter.lines, loads, stores, variant.buffers), variant)
    try:
        check_program(program, emitter.words)
    except ArgumentError as problem:  # a program that is not legal must not reach a device
        raise Unsupported(f"has no legal program: {problem}") from problem
    return program, emitter, dispatches


def _side_by_side(emitter: Emitter, nodes: Sequence[Node]) -> bool:
    """Whether tensors of steps lie behind each other in the arena, in each role."""
    updates = [update_of(node) for node in nodes]
    for role in zip(*(job for update in updates for job in update.jobs), strict=True):
        for parts in zip(*(emitter.place(binding.buffer) for binding in role), strict=True):
            ends = [piece.register.offset + piece.register.elements for piece in parts]
            if any(p.register.offset != end for p, end in zip(parts[1:], ends, strict=False)):
                return False
    return True


def _transfers(emitter: Emitter, numbers: Sequence[int]) -> list[Transfer]:
    return [transfer for number in numbers for transfer in emitter.pieces[number]]


def _outside(graph: Graph, run: Sequence[int]) -> set[int]:
    """The buffers that are more than intermediate results of a run."""
    inside = set(run)
    used = {value.buffer for value in graph.kept} | {operand.value.buffer for operand in graph.outputs}
    used |= {number for number, buffer in graph.buffers.items() if buffer.kind != "temporary"}
    for position, node in enumerate(graph.nodes):
        if position not in inside:
            used |= buffers_of(node)
    return used


def _launch(
    graph: Graph,
    dispatch: ScheduledDispatch,
    emitter: Emitter,
    variant: InterpreterVariant,
    code: int,
    arena: int,
    buffers: dict[int, GraphBuffer],
) -> BoundLaunch:
    bound = [code, arena, *dispatch.buffers]
    bound += [code] * (2 + variant.buffers - len(bound))  # what is not used binds what nothing writes
    launch = launch_of(
        variant, dispatch.first, dispatch.last, tuple(value for _, value in emitter.parameters)
    )
    varying = tuple(
        word._replace(offset=4 * (PUSH_WORDS + position))
        for position, (word, _) in enumerate(emitter.parameters)
    )
    written = {arena, *(number for number in dispatch.buffers if number in emitter.written)}
    return BoundLaunch(
        launch,
        tuple(Binding(number, 0, bound_bytes(buffers[number].nbytes)) for number in bound),
        tuple(number in written for number in bound),
        varying,
    )


def _node(graph: Graph, run: Sequence[int], commands: tuple[BoundLaunch, ...], code: int, arena: int) -> Node:
    """The node of a program, in place of those that it runs."""
    parts = tuple(graph.nodes[position] for position in run)
    outside = _outside(graph, run)
    made = {value for node in parts for value in node.writes}
    reads = dict.fromkeys(value for node in parts for value in node.reads if value not in made)
    last = {value.buffer: value for node in parts for value in node.writes if value.buffer in outside}
    return Node(
        "op codes",
        reads=(Value(code, 0), *reads),
        writes=(Value(arena, 1), *last.values()),
        commands=commands,
        parts=parts,
    )
