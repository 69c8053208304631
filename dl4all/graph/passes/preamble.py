"""Moves what depends on captured memory alone, such as transformed filters, out of the calls into a preamble.

A command is moved if it reads only captured buffers that the graph never writes, constants, and what other
moved commands have written; and if nobody but the graph sees what it writes. So a convolution loses the
transform of its filters, which is one of its commands, and keeps the others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from dl4all.graph.ir.graph import (
    BoundFill,
    BoundLaunch,
    Command,
    Graph,
    HostCall,
    MultiTensorLaunch,
    Node,
    Value,
    bindings_of,
    buffers_of,
)
from dl4all.ops.core.kernels.host_work import HostWork
from dl4all.ops.core.op import REGISTRY

WIDENING = "linalg/packed_unpack.comp"
"""The shader that makes floats of weights in few bits, which are so to save the memory that it writes to."""


def preamble(graph: Graph) -> Graph:
    """The graph with a preamble, of all that need not be computed in each call."""
    moved, rest = split(graph)
    if not moved:
        return graph
    derived = {buffer for node in moved for buffer in buffers_of(node)}
    derived &= {buffer for node in rest.nodes for buffer in buffers_of(node)}
    buffers = {
        number: replace(buffer, kind="derived")
        if number in derived and buffer.kind == "temporary"
        else buffer
        for number, buffer in graph.buffers.items()
    }
    whole = replace(rest, buffers=buffers, preamble=(*graph.preamble, *moved))
    return whole.with_nodes(rest.nodes)


def split(graph: Graph) -> tuple[tuple[Node, ...], Graph]:
    """The nodes that need to run only once, in their order, and the graph without them.

    Of a node with commands of both sorts either gets a part. Buffers stay as they are.
    """
    moved = _movable_commands(graph)
    if not moved:
        return (), graph
    preamble, nodes = list[Node](), list[Node]()
    for position, node in enumerate(graph.nodes):
        mine = {index for at, index in moved if at == position}
        if not mine:
            nodes.append(node)
        elif len(mine) == len(node.commands):
            preamble.append(node)
        else:
            first, second = _parts(node, mine)
            preamble.append(first)
            nodes.append(second)
    return tuple(preamble), replace(graph, nodes=tuple(nodes))


def fixed_values(graph: Graph) -> set[Value]:
    """The values that are the same in each call until somebody changes captured memory.

    For passes that give the graph more to compute with such values.
    """
    moved = _movable_commands(graph)
    constant = {Value(number, 0) for number in _unwritten(graph)}
    computed = {
        value
        for position, node in enumerate(graph.nodes)
        if node.commands and all((position, index) in moved for index in range(len(node.commands)))
        for value in node.writes
    }
    derived = {
        value
        for node in graph.preamble
        for value in node.writes
        if graph.buffers[value.buffer].kind == "derived"
    }
    return constant | computed | derived


class _Access(NamedTuple):
    """The reads and writes of a command, by the numbers of buffers."""

    reads: frozenset[int]
    writes: frozenset[int]
    repeatable: bool  # whether the same contents give the same results


def _access(node: Node, command: Command) -> _Access:
    if isinstance(command, BoundFill):
        return _Access(frozenset(), frozenset([command.binding.buffer]), True)
    if isinstance(command, MultiTensorLaunch):
        return _Access(frozenset(), frozenset(binding.buffer for binding in bindings_of(command)), False)
    read, written = set[int](), set[int]()
    for binding, writes in zip(command.bindings, command.writes, strict=True):
        (written if writes else read).add(binding.buffer)
    return _Access(frozenset(read), frozenset(written), _is_repeatable(node, command))


def _is_repeatable(node: Node, command: BoundLaunch | HostCall) -> bool:
    """Whether a command computes the same again; a host call may hide anything, unless an op says what."""
    if isinstance(command, BoundLaunch):
        return not command.varying and command.launch.shader.path != WIDENING
    op, work = REGISTRY.get(node.op), command.run
    varies = isinstance(work, HostWork) and bool(work.marks)
    return op is not None and op.family != "random" and not varies


def _unwritten(graph: Graph) -> set[int]:
    """The buffers whose contents are there before the graph runs, and stay."""
    written = {value.buffer for node in graph.nodes for value in node.writes}
    for node in graph.nodes:
        for command in node.commands:
            written |= _access(node, command).writes
    fixed = ("captured", "constant", "derived")
    return {n for n, buffer in graph.buffers.items() if buffer.kind in fixed and n not in written}


def _movable_commands(graph: Graph) -> set[tuple[int, int]]:
    """Positions of nodes and of commands in them: the largest set that depends on nothing outside."""
    accesses = {
        (position, index): _access(node, command)
        for position, node in enumerate(graph.nodes)
        for index, command in enumerate(node.commands)
    }
    fixed = _unwritten(graph)
    seen = {value.buffer for value in graph.kept} | {operand.value.buffer for operand in graph.outputs}
    private = {n for n, b in graph.buffers.items() if b.kind == "temporary" and n not in seen}
    readers, writers = (
        defaultdict[int, list[tuple[int, int]]](list),
        defaultdict[int, list[tuple[int, int]]](list),
    )
    for place, access in accesses.items():
        for buffer in access.reads:
            readers[buffer].append(place)
        for buffer in access.writes:
            writers[buffer].append(place)
    moved = {place for place, access in accesses.items() if access.repeatable and access.writes <= private}

    def stays(place: tuple[int, int]) -> bool:
        access = accesses[place]
        for buffer in access.reads - fixed:
            if buffer not in private or not writers[buffer] or not moved.issuperset(writers[buffer]):
                return True
        for buffer in access.writes:
            others = [reader for reader in readers[buffer] if reader not in moved]
            # What stays finds what was written last; if it ran in between, it wants something else.
            if not moved.issuperset(writers[buffer]) or (others and min(others) < max(writers[buffer])):
                return True
        return False

    while staying := {place for place in moved if stays(place)}:
        moved -= staying
    return moved


def _parts(node: Node, moved: set[int]) -> tuple[Node, Node]:
    """The node's commands that are moved, and the node without them."""
    first = tuple(command for index, command in enumerate(node.commands) if index in moved)
    second = tuple(command for index, command in enumerate(node.commands) if index not in moved)
    touched = {binding.buffer for command in first for binding in bindings_of(command)}
    written = {buffer for command in first for buffer in _access(node, command).writes}
    values = tuple(value for value in node.writes if value.buffer in written)
    before = Node(
        f"{node.name} of captured memory",
        reads=tuple(value for value in node.reads if value.buffer in touched),
        writes=values,
        commands=first,
        line=node.line,
    )
    after = replace(
        node,
        reads=(*(value for value in node.reads if value.buffer not in written), *values),
        writes=tuple(value for value in node.writes if value not in values),
        commands=second,
    )
    return before, after
