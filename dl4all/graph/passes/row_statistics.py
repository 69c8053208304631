"""Row normalisation keeps the mean and the scale of each row for the gradient.

In immediate mode the gradient of weight and bias computes them again, in a launch that reads the whole input.
In a graph both are known, so the kernel that normalises writes them as well.
"""

from __future__ import annotations

from dataclasses import replace

from dl4all.graph.ir.graph import Binding, BoundLaunch, Graph, Node, Value, is_private
from dl4all.graph.passes.device_limits import max_bindings
from dl4all.ops.core.kernels.push_block import push_constants

PATH = "normalization/rows.comp"


def row_statistics(graph: Graph) -> Graph:
    """The graph without launches for statistics that an earlier launch can write."""
    nodes: list[Node | None] = list(graph.nodes)
    last_writes = {value.buffer: value.version for node in graph.nodes for value in node.writes}
    bindings = max_bindings(graph.device)
    for position, node in enumerate(graph.nodes):
        for command in node.commands:
            statistics = _statistics(node, command)
            if statistics is None or last_writes[statistics.buffer] > 1 or not is_private(graph, statistics):
                continue
            assert isinstance(command, BoundLaunch)
            found = _earlier(nodes, position, node, command)
            if found is None:
                continue
            earlier, norm = found
            if len(norm.bindings) >= bindings:
                continue
            first = nodes[earlier]
            assert first is not None
            nodes[earlier] = _with_statistics(first, norm, statistics, command.bindings[1])
            nodes[position] = _without(node, command, statistics)
    return graph.with_nodes(node for node in nodes if node is not None)


def _statistics(node: Node, command: object) -> Value | None:
    """The value that a launch writes if it is one for means and scales only."""
    if not isinstance(command, BoundLaunch) or command.launch.shader.path != PATH:
        return None
    if not command.launch.shader.macros.get("FOLD"):
        return None
    return next((value for value in node.writes if value.buffer == command.bindings[1].buffer), None)


def _earlier(
    nodes: list[Node | None], position: int, node: Node, command: BoundLaunch
) -> tuple[int, BoundLaunch] | None:
    """The node that normalises what a launch for statistics reads, and its launch."""
    source = next((value for value in node.reads if value.buffer == command.bindings[0].buffer), None)
    if source is None:
        return None
    wanted = _statistic(command)
    for earlier in range(position):
        other = nodes[earlier]
        if other is None or source not in other.reads:
            continue
        for norm in other.commands:
            if not isinstance(norm, BoundLaunch) or norm.launch.shader.path != PATH:
                continue
            macros = norm.launch.shader.macros
            if macros.get("FOLD") or macros.keys() & {"PROLOGUE", "STATISTICS"}:
                continue
            if norm.bindings[0] == command.bindings[0] and _statistic(norm) == wanted:
                return earlier, norm
    return None


def _statistic(command: BoundLaunch) -> tuple[object, ...]:
    """The key of the statistics of a launch beside the memory that it reads."""
    push = push_constants(command.launch)
    macros = command.launch.shader.macros
    width = 4 if macros["FOURS"] else 1
    return push.rows, push.size * width, push.eps, push.x_offset * width, macros["CENTER"]


def _with_statistics(node: Node, norm: BoundLaunch, statistics: Value, binding: Binding) -> Node:
    """A node one of whose launches writes statistics as well."""
    launch = norm.launch
    shader = launch.shader.with_macros({"STATISTICS": len(norm.bindings)})
    written = replace(
        norm,
        launch=replace(launch, shader=shader),
        bindings=(*norm.bindings, binding),
        writes=(*norm.writes, True),
    )
    return replace(
        node,
        commands=tuple(written if command is norm else command for command in node.commands),
        writes=(*node.writes, statistics),
    )


def _without(node: Node, command: BoundLaunch, statistics: Value) -> Node:
    """A node that reads the statistics of another."""
    return replace(
        node,
        commands=tuple(other for other in node.commands if other is not command),
        reads=(*node.reads, statistics),
        writes=tuple(value for value in node.writes if value != statistics),
    )
