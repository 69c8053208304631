"""Launches that compute the same of the same run once, even where they belong to different ops.

The sums of a batch norm's gradient and the gradient of its input, for example, both begin with the scales of
the channels.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dl4all.graph.graph import BoundLaunch, Graph, Node, Value, bindings_of
from dl4all.graph.passes.substitution import Substitution


def common_launches(graph: Graph) -> Graph:
    """The graph without launches whose results, all of them temporaries, an earlier one has computed."""
    substitution = Substitution(graph)
    known: dict[Hashable, tuple[Value, ...]] = {}
    nodes: list[Node] = []
    for before in graph.nodes:
        node = substitution.resolved(before)
        for command in node.commands:
            if not isinstance(command, BoundLaunch):
                continue
            key, made = _key(node, command)
            if key is None:
                continue
            earlier = known.setdefault(key, made)
            if earlier == made or not all(
                substitution.is_replaceable(value.buffer, before) and substitution.stays(old, value.buffer)
                for old, value in zip(earlier, made, strict=True)
            ):
                continue
            node = _without(node, command, made)
            for old, value in zip(earlier, made, strict=True):
                substitution.replace(value.buffer, old)
            node = substitution.resolved(node)
        if node.commands or not before.commands:
            nodes.append(node)
    return graph.with_nodes(nodes)


def _key(node: Node, command: BoundLaunch) -> tuple[Hashable, tuple[Value, ...]]:
    """What a launch computes of which values, and the values that it makes.

    There is no key where it reads what its own node has written.
    """
    read = {value.buffer: value for value in node.reads}
    written = {value.buffer: value for value in node.writes}
    sources, made = [], []
    for binding, writes in zip(command.bindings, command.writes, strict=True):
        if writes:
            writers = [other for other in node.commands if _writes(other, binding.buffer)]
            if binding.buffer in read or binding.offset or len(writers) != 1:
                return None, ()
            made.append(written[binding.buffer])
        elif binding.buffer not in read or binding.buffer in written:
            return None, ()
        else:
            sources.append((read[binding.buffer], binding.offset, binding.nbytes))
    if command.varying or not sources or not made:
        return None, ()
    return (command.launch, tuple(sources), command.writes), tuple(made)


def _writes(command: object, number: int) -> bool:
    """Whether a command may write to a buffer."""
    if not isinstance(command, BoundLaunch):
        return True
    return any(
        write and binding.buffer == number
        for binding, write in zip(command.bindings, command.writes, strict=True)
    )


def _without(node: Node, command: BoundLaunch, made: tuple[Value, ...]) -> Node:
    """A node without one of its commands; what others bind of what that made is in its reads."""
    commands = tuple(other for other in node.commands if other is not command)
    bound = {binding.buffer for other in commands for binding in bindings_of(other)}
    return replace(
        node,
        commands=commands,
        reads=(
            *(value for value in node.reads if value.buffer in bound),
            *(value for value in made if value.buffer in bound),
        ),
        writes=tuple(value for value in node.writes if value not in made),
    )
