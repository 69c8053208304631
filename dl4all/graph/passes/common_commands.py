"""Leaves out commands of a node that an earlier node has run on the same contents.

The kernels of an op often begin with work for a few numbers, such as the factors of batch normalisation,
which the gradients' kernels then do again. Results are the same bit by bit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dl4all.graph.ir.graph import Binding, BoundFill, BoundLaunch, Command, Graph, Node, Value, buffers_of
from dl4all.graph.run.memory_pieces import pieces_of

MOST_BYTES = 1 << 16
"""Of what is kept for the later node: for more, memory counts for more than one dispatch."""


def common_commands(graph: Graph) -> Graph:
    """The graph without commands that compute again what lies in memory already."""
    scratch = _scratch(graph)
    contents: defaultdict[int, int] = defaultdict(int)  # how often each buffer was written
    known: dict[Any, tuple[Value, ...]] = {}  # what a command has written, by what it does
    nodes, changed = list[Node](), False
    for node in graph.nodes:
        instead: dict[int, Value] = {}
        commands = list[Command]()
        for command in node.commands:
            renamed = _renamed(command, instead)
            key = _key(renamed, scratch, contents)
            if key is not None and key in known:
                written = [b.buffer for b, writes in pieces_of(command) if writes]
                instead.update(zip(written, known[key], strict=True))
                continue
            commands.append(renamed)
            for binding, writes in pieces_of(renamed):
                contents[binding.buffer] += writes
            if key is not None:
                versions = {value.buffer: value for value in node.writes}
                known[key] = tuple(versions[b.buffer] for b, writes in pieces_of(renamed) if writes)
        changed |= bool(instead)
        nodes.append(_without(node, tuple(commands), instead) if instead else node)
    return graph.with_nodes(nodes) if changed else graph


def _scratch(graph: Graph) -> set[int]:
    """Small temporaries that one command writes, and that no other node uses."""
    users = Counter(buffer for node in graph.nodes for buffer in buffers_of(node))
    writers = Counter(
        binding.buffer
        for node in graph.nodes
        for command in node.commands
        for binding, writes in pieces_of(command)
        if writes
    )
    results = {node.result.value.buffer for node in graph.nodes if node.result is not None}
    results.update(value.buffer for value in graph.kept)
    return {
        number
        for number, buffer in graph.buffers.items()
        if buffer.kind == "temporary" and buffer.nbytes <= MOST_BYTES
        if users[number] == writers[number] == 1 and number not in results
    }


def _key(command: Command, scratch: set[int], contents: Mapping[int, int]) -> Any:
    """The key of a command's effect; None where it leaves more than scratch."""
    if not isinstance(command, BoundLaunch) or command.varying or not any(command.writes):
        return None
    pieces = list[Any]()
    for binding, writes in pieces_of(command):
        if writes and binding.buffer not in scratch:
            return None
        pieces.append(binding[1:] if writes else (*binding, contents.get(binding.buffer, 0)))
    return command.launch, command.writes, tuple(pieces)


def _renamed(command: Command, instead: Mapping[int, Value]) -> Command:
    """The command on what an earlier one has written, where that is known."""
    if not instead or not isinstance(command, (BoundLaunch, BoundFill)):
        return command
    if isinstance(command, BoundFill):
        return command  # it writes, and what is left out was all that writes there
    bindings = (
        binding._replace(buffer=instead[binding.buffer].buffer) if binding.buffer in instead else binding
        for binding in command.bindings
    )
    return replace(command, bindings=tuple[Binding, ...](bindings))


def _without(node: Node, commands: tuple[Command, ...], instead: Mapping[int, Value]) -> Node:
    """The node with fewer commands, which reads what they would have written, or writes it itself."""
    others = (value for value in instead.values() if value not in node.writes)
    return replace(
        node,
        commands=commands,
        reads=tuple(dict.fromkeys((*node.reads, *others))),
        writes=tuple(value for value in node.writes if value.buffer not in instead),
    )
