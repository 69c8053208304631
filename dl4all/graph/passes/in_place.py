"""Elementwise nodes write over operands that nothing needs afterwards.

The result takes the operand's place in memory, as its next version, so that the plan needs less.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dl4all.graph.codegen.elementwise_kernel import FusedKernel, combine, covers, is_elementwise
from dl4all.graph.ir.graph import (
    Argument,
    Binding,
    BoundFill,
    Command,
    Graph,
    MultiTensorLaunch,
    Node,
    Operand,
    Value,
    buffers_of,
)
from dl4all.graph.passes.fusion.elementwise_fusion import is_candidate, parts_of


class _Place(NamedTuple):
    """The new place of a buffer's contents: another buffer, as versions behind those that it had."""

    buffer: int
    versions: int


def in_place(graph: Graph) -> Graph:
    """Let the results of elementwise nodes overwrite operands of the same size that die there."""
    first, last = _spans(graph)
    read = frozenset(value for node in graph.nodes for value in node.reads)
    newest = _versions(graph)
    fixed = {value.buffer for value in graph.kept} | {o.value.buffer for o in graph.outputs}
    places: dict[int, _Place] = {}
    for position, node in enumerate(graph.nodes):
        kernel = _kernel(node, graph, read)
        if kernel is None:
            continue
        free = {
            buffer
            for buffer in buffers_of(node) - fixed
            if graph.buffers[buffer].kind == "temporary" and last[_root(buffer, places)] == position
        }
        for store in kernel.stores:
            made = store.operand.value.buffer
            if made in fixed or graph.buffers[made].kind != "temporary" or first[made] != position:
                continue
            for load in kernel.loads:
                old = load.operand.value.buffer
                if old == made or old not in free or not _may_take(kernel, old, made, graph):
                    continue
                root = _root(old, places)
                places[made] = _Place(root, newest[root])
                newest[root] += newest[made]
                last[root] = last[made]
                free -= {other for other in free if _root(other, places) == root}
                break
    return _renamed_graph(graph, places) if places else graph


def _kernel(node: Node, graph: Graph, read: frozenset[Value]) -> FusedKernel | None:
    """The loads and stores of an elementwise node, or of one that stands for several."""
    parts = parts_of([node])
    if node.parts:
        elementwise = not node.op and all(is_elementwise(part) for part in parts)
        return combine(parts, node.writes) if elementwise else None
    return combine(parts, node.writes) if is_candidate(node, graph, read) else None


def _may_take(kernel: FusedKernel, old: int, made: int, graph: Graph) -> bool:
    """Whether every read of one buffer is of what the same invocation writes to another of the same size."""
    store = next(store for store in kernel.stores if store.operand.value.buffer == made)
    loads = [load for load in kernel.loads if load.operand.value.buffer == old]
    written = any(store.operand.value.buffer == old for store in kernel.stores)
    return (
        not written
        and graph.buffers[old].nbytes == graph.buffers[made].nbytes
        and all(covers(load, store, kernel.shape) for load in loads)
    )


def _spans(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """The positions of the first and of the last node that touch each buffer."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, node in enumerate(graph.nodes):
        for buffer in buffers_of(node):
            first.setdefault(buffer, position)
            last[buffer] = position
    return first, last


def _versions(graph: Graph) -> dict[int, int]:
    """The highest version of each buffer that anything names."""
    highest: dict[int, int] = {}
    for node in graph.nodes:
        for value in (*node.reads, *node.writes):
            highest[value.buffer] = max(highest.get(value.buffer, 0), value.version)
    return highest


def _root(buffer: int, places: dict[int, _Place]) -> int:
    while buffer in places:
        buffer = places[buffer].buffer
    return buffer


# Renaming


def _renamed_graph(graph: Graph, places: dict[int, _Place]) -> Graph:
    return graph.with_nodes(_renamed(node, places) for node in graph.nodes)


def _renamed(node: Node, places: dict[int, _Place]) -> Node:
    """A node whose values lie where they have gone, and so for the nodes that it stands for."""
    if not places.keys() & _named(node):
        return node
    return replace(
        node,
        operands=tuple(_moved_argument(operand, places) for operand in node.operands),
        result=None if node.result is None else _moved_operand(node.result, places),
        reads=tuple(dict.fromkeys(_moved(value, places) for value in node.reads)),
        writes=tuple(_moved(value, places) for value in node.writes),
        commands=tuple(_rebound(command, places) for command in node.commands),
        parts=tuple(_renamed(part, places) for part in node.parts),
    )


def _named(node: Node) -> set[int]:
    return buffers_of(node).union(*(_named(part) for part in node.parts))


def _moved(value: Value, places: dict[int, _Place]) -> Value:
    while value.buffer in places:
        place = places[value.buffer]
        value = Value(place.buffer, place.versions + value.version)
    return value


def _moved_operand(operand: Operand, places: dict[int, _Place]) -> Operand:
    return replace(operand, value=_moved(operand.value, places))


def _moved_argument(argument: Argument, places: dict[int, _Place]) -> Argument:
    return _moved_operand(argument, places) if isinstance(argument, Operand) else argument


def _rebound(command: Command, places: dict[int, _Place]) -> Command:
    """A command on the memory where its buffers have gone."""

    def piece(binding: Binding) -> Binding:
        return binding._replace(buffer=_root(binding.buffer, places))

    if isinstance(command, BoundFill):
        return replace(command, binding=piece(command.binding))
    if isinstance(command, MultiTensorLaunch):
        return replace(
            command,
            jobs=tuple(tuple(map(piece, job)) for job in command.jobs),
            before=tuple(map(piece, command.before)),
            after=tuple(map(piece, command.after)),
        )
    return replace(command, bindings=tuple(map(piece, command.bindings)))
