"""Substitution: a value takes the place of another one that holds the same bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

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
    is_private,
)


class Substitution:
    """Which buffers others stand for, while a pass goes through the nodes of a graph in order.

    A buffer can be replaced if it is written once, by one node, and if nothing outside of the graph sees it.
    What takes its place must stay as it is until the last use of what it replaces.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._writes = defaultdict[int, list[tuple[int, int]]](list)  # versions and positions by buffer
        self._last_uses: dict[int, int] = {}
        self._replaced: dict[int, Value] = {}
        for position, node in enumerate(graph.nodes):
            for value in node.writes:
                self._writes[value.buffer].append((value.version, position))
            for number in buffers_of(node) | {operand.value.buffer for operand in node.tensors}:
                self._last_uses[number] = position

    def resolved(self, node: Node) -> Node:
        """A node with what took the place of its operands."""
        return substituted(node, self._replaced) if self._replaced else node

    def is_replaceable(self, number: int, node: Node) -> bool:
        """Whether a buffer that a node writes belongs to nobody else."""
        value = Value(number, 1)
        return (
            len(self._writes[number]) == 1
            and value in node.writes
            and all(read.buffer != number for read in node.reads)
            and is_private(self._graph, value)
        )

    def stays(self, value: Value, replaced: int) -> bool:
        """Whether a value is not overwritten until after the last use of a buffer."""
        until = self._last_uses[replaced]
        return not any(
            version > value.version and position <= until for version, position in self._writes[value.buffer]
        )

    def replace(self, number: int, value: Value) -> None:
        """From now on a value, at the start of its buffer, stands for all that a buffer holds."""
        self._replaced[number] = value
        self._last_uses[value.buffer] = max(self._last_uses[number], self._last_uses[value.buffer])


def substituted(node: Node, values: Mapping[int, Value]) -> Node:
    """A node that uses values, at the start of their buffers, in place of what other buffers hold."""
    if not values.keys() & (buffers_of(node) | {operand.value.buffer for operand in node.tensors}):
        return node

    def value_of(value: Value) -> Value:
        return values.get(value.buffer, value)

    def argument(one: Argument) -> Argument:
        return replace(one, value=value_of(one.value)) if isinstance(one, Operand) else one

    result = node.result
    return replace(
        node,
        operands=tuple(map(argument, node.operands)),
        result=None if result is None else replace(result, value=value_of(result.value)),
        reads=tuple(dict.fromkeys(map(value_of, node.reads))),
        writes=tuple(map(value_of, node.writes)),
        commands=tuple(
            bound_elsewhere(command, {number: value.buffer for number, value in values.items()})
            for command in node.commands
        ),
        parts=tuple(substituted(part, values) for part in node.parts),
    )


def bound_elsewhere(command: Command, numbers: Mapping[int, int]) -> Command:
    """A command that binds other buffers, in place of those with these numbers."""

    def moved(bindings: tuple[Binding, ...]) -> tuple[Binding, ...]:
        return tuple(b._replace(buffer=numbers.get(b.buffer, b.buffer)) for b in bindings)

    if isinstance(command, BoundFill):
        return replace(command, binding=moved((command.binding,))[0])
    if isinstance(command, MultiTensorLaunch):
        jobs = tuple(map(moved, command.jobs))
        return replace(command, jobs=jobs, before=moved(command.before), after=moved(command.after))
    return replace(command, bindings=moved(command.bindings))
