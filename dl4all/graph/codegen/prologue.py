"""Prologues: expressions that reductions and normalisations compute of an operand's elements.

The kernels of :func:`slot_of` include ``shaders/include/prologue.glsl``. A variant of one that defines
PROLOGUE reads an expression of elements of several sources in place of one of its operands, so that the
elementwise ops in front of it cost no launch of their own and no trip through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dl4all.graph.codegen.elementwise_kernel import FLOATS, is_whole
from dl4all.graph.codegen.epilogue import (
    MAX_PUSH_BYTES,
    Place,
    Statements,
    holds,
    is_dense,
    place_of,
    storage_type,
    whole_of,
)
from dl4all.graph.ir.graph import BoundLaunch, Graph, Node, Operand
from dl4all.ops.core.kernels.launch import pack
from dl4all.ops.core.kernels.push_block import push_constants
from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.scheduler.device.current import device as find_device
from dl4all.scheduler.device.programs import Launch

MAX_SOURCES = 4  # of a prologue


class PrologueSlot(NamedTuple):
    """The operand of a kernel in whose place a prologue computes."""

    binding: int
    offset: str  # the push constant that is the place of its first element
    fours: bool  # whether it is read as vec4s
    passes: int  # how often each element is read


class Prologue(NamedTuple):
    """The statements of a prologue, the operands that they read, and where each has its elements."""

    statements: str
    sources: tuple[Operand, ...]
    places: tuple[Place, ...]
    includes: frozenset[str]


# Binding, push constant of the offset, and how often an element is read where it is not kept.
SLOTS = {
    "loss/cross_entropy_backward.comp": (0, "g_offset", 1),
    "normalization/batch_norm.comp": (0, "x_offset", 1),
    "normalization/batch_norm_backward.comp": (0, "g_offset", 1),
    "normalization/rows.comp": (0, "x_offset", 3),
    "normalization/rows_backward.comp": (0, "g_offset", 2),
    "normalization/statistics.comp": (0, "x_offset", 2),
    "normalization/sums.comp": (0, "g_offset", 1),
    "reduce/softmax.comp": (0, "x_offset", 3),
    "reduce/softmax_backward.comp": (0, "g_offset", 2),
}


def slot_of(launch: Launch) -> PrologueSlot | None:
    """The operand of a launch that a prologue can stand for; None where there is none.

    Of kernels with several operands that is the gradient, which comes out of elementwise ops most often.
    """
    path, macros = launch.shader.path, launch.shader.macros
    if "PROLOGUE" in macros:
        return None
    if path == "reduce/reduce.comp":
        return None if macros["MERGE"] else PrologueSlot(0, "x_offset", macros["SUBGROUPS"] != 0, 1)
    if path == "normalization/channel_rows.comp":
        fours = macros["FOURS"] == 1
        if macros["SUMS"]:
            return PrologueSlot(1, "g_offset", fours, 1)
        return PrologueSlot(0, "x_offset", fours, 2)
    if path not in SLOTS:
        return None
    if path == "loss/cross_entropy_backward.comp":
        # The gradient is one of each row. Where classes have weights, they lie behind it.
        return PrologueSlot(*SLOTS[path][:2], fours=False, passes=1) if not macros["WEIGHT"] else None
    binding, offset, passes = SLOTS[path]
    return PrologueSlot(binding, offset, macros["FOURS"] == 1, passes)


def prologue_of(nodes: Sequence[Node], slots: Sequence[PrologueSlot]) -> Prologue | None:
    """The prologue that computes the result of elementwise nodes.

    Args:
        nodes: in order; nobody else needs the results of any but the last.
        slots: where the last one's result is read.

    Returns:
        None where an op, an operand or a dtype has no place in a prologue.
    """
    last = nodes[-1].result
    if last is None or not is_dense(last):
        return None
    writer = Statements(last.elements, {})
    inner = {node.result.value for node in nodes if node.result is not None}
    leaves = [
        (operand, place_of(operand, node.result.shape))
        for node in nodes
        if node.result is not None
        for operand in node.tensors
        if operand.value not in inner and operand.dtype in FLOATS and not operand.offset
    ]
    whole = Place(1, last.elements)
    # The first source takes the operand's place, so it has to be read in the same way.
    first = next(((operand, place) for operand, place in leaves if place == whole), None)
    if first is None and not any(slot.fours for slot in slots):
        first = next(((o, place) for o, place in leaves if place is not None and place.period == 1), None)
    if first is None or first[1] is None:
        return None
    writer.operands.append(first[0])
    writer.places.append(first[1])
    if not all(writer.add(node) for node in nodes) or len(writer.operands) > MAX_SOURCES:
        return None
    return Prologue(writer.text(), tuple(writer.operands), tuple(writer.places), frozenset(writer.includes))


def with_prologue(
    graph: Graph, anchor: Node, nodes: Sequence[Node], max_bindings: int = MAX_BINDINGS
) -> Node | None:
    """One node that computes what elementwise nodes and an anchor behind them compute.

    Args:
        graph: the graph of the nodes.
        anchor: a node with kernels that :func:`slot_of` knows.
        nodes: elementwise nodes, in order. The anchor reads the last one's result; it does not need those of
            the others.
        max_bindings: how many buffers a dispatch may bind.

    Returns:
        None where the kernels cannot do it.
    """
    before = nodes[-1].result
    slots = None if before is None else slots_of(anchor, before)
    if before is None or slots is None:
        return None
    if not all(node.result is not None and is_whole(graph, node.result) for node in nodes):
        return None  # of a part that was changed in place, the anchor reads the rest, too
    prologue = prologue_of(nodes, [slot for slot in slots if slot is not None])
    if prologue is None or not holds(find_device(graph.device), prologue.sources):
        return None
    sources = {operand.value.buffer for operand in prologue.sources}
    if sources & {value.buffer for value in anchor.writes}:
        return None  # the source would be overwritten while it is read
    commands = []
    for command, slot in zip(anchor.commands, slots, strict=True):
        if slot is not None:
            assert isinstance(command, BoundLaunch)
            begun = _begun(graph, command, slot, prologue, before.elements)
            if begun is None or len(begun.bindings) > max_bindings:
                return None
            command = begun
        commands.append(command)
    reads = [value for value in anchor.reads if value != before.value]
    operands = [
        operand
        for operand in anchor.operands
        if not (isinstance(operand, Operand) and operand.value == before.value)
    ]
    return Node(
        name="_".join((*(node.name for node in nodes), anchor.name)),
        operands=(*prologue.sources, *operands),
        result=anchor.result,
        reads=tuple(dict.fromkeys((*(operand.value for operand in prologue.sources), *reads))),
        writes=anchor.writes,
        commands=tuple(commands),
        parts=(*nodes, *(anchor.parts or (anchor,))),
        line=anchor.line,
    )


def slots_of(node: Node, operand: Operand) -> list[PrologueSlot | None] | None:
    """The slots in which commands read an operand; None unless a prologue can stand for it everywhere."""
    found: list[PrologueSlot | None] = []
    for command in node.commands:
        if not isinstance(command, BoundLaunch):
            return None
        bound = [piece.buffer for piece in command.bindings]
        count = bound.count(operand.value.buffer)
        slot = slot_of(command.launch) if count else None
        if count:
            if count > 1 or slot is None or bound[slot.binding] != operand.value.buffer:
                return None
            offset = getattr(push_constants(command.launch), slot.offset)
            if offset or command.bindings[slot.binding].offset or command.writes[slot.binding]:
                return None
        found.append(slot)
    return found if any(found) else None


def _begun(
    graph: Graph, command: BoundLaunch, slot: PrologueSlot, prologue: Prologue, elements: int
) -> BoundLaunch | None:
    """A launch with a prologue."""
    launch = command.launch
    defines: dict[str, Any] = {
        "PROLOGUE": prologue.statements,
        "SOURCES": len(prologue.sources),
        "FIRST_SOURCE": len(command.bindings),
    }
    words: list[int] = []
    declared = []
    for number, place in enumerate(prologue.places):
        kind, lengths = _kind(place, elements, 4 if slot.fours else 1)
        if kind == "DIVIDED" and slot.fours and slot.passes > 1:
            return None  # eight divisions for four elements, each time, cost more than the launch
        defines[f"SOURCE{number}"] = kind
        words += lengths.values()
        declared += [f"uint {name}{number};" for name in lengths]
    push = launch.push + pack(*words)
    if len(push) > MAX_PUSH_BYTES:
        return None
    defines["PROLOGUE_PUSH"] = " ".join(declared)
    defines |= dict.fromkeys(prologue.includes, 1)
    places = (slot.binding, *range(len(command.bindings), len(command.bindings) + len(prologue.sources) - 1))
    types = [storage_type(graph, operand.dtype, read=True) for operand in prologue.sources]
    shader = launch.shader.with_macros(defines).storing_at(dict(zip(places, types, strict=True)))
    first, *extra = (whole_of(graph, operand.value.buffer) for operand in prologue.sources)
    bindings = list(command.bindings)
    bindings[slot.binding] = first
    return replace(
        command,
        launch=replace(launch, shader=shader, push=push),
        bindings=(*bindings, *extra),
        writes=(*command.writes, *(False for _ in extra)),
    )


def _kind(place: Place, elements: int, width: int) -> tuple[str, dict[str, int]]:
    """The kind of place of a source's elements, and its push constants: see prologue.glsl."""
    inner, period = place
    if period == 1:
        return "ONE", {}
    if place == Place(1, elements):
        return "ELEMENT", {}
    if inner == 1 and period % width == 0:
        return "CYCLIC", {"cycle": period // width}
    if inner % width == 0:
        return "BLOCKS", {"length": inner // width, "cycle": period}
    return "DIVIDED", {"length": inner, "cycle": period}
