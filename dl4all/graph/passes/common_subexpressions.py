"""Common subexpressions: what is computed twice from the same values is computed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dl4all.graph.ir.graph import BoundFill, Command, Graph, HostCall, Node, Operand, Value
from dl4all.graph.passes.substitution import Substitution, bound_elsewhere
from dl4all.ops.core.op import REGISTRY


def common_subexpressions(graph: Graph) -> Graph:
    """A graph in which the results of equal nodes are those of the first of them.

    Nodes are equal if they run the same commands on the same values. Those that work in place are left, and
    those whose push constants vary, such as dropout.

    >>> from dl4all.graph.ir.parser import parse_graph
    >>> graph = parse_graph('''graph cpu
    ... buffer @0: input, 4 bytes
    ... buffer @1: temporary, 4 bytes
    ... buffer @2: temporary, 4 bytes
    ... buffer @3: output, 4 bytes
    ... inputs @0
    ... %1: float32[1] = exp(%0.0: float32[1])
    ... %2: float32[1] = exp(%0.0)
    ... %3: float32[1] = add(%1, %2, alpha=1)
    ... return %3
    ... ''')
    >>> [str(operand.value) for operand in common_subexpressions(graph).nodes[1].tensors]
    ['%1', '%1']
    """
    substitution = Substitution(graph)
    first: dict[Hashable, tuple[Value, ...]] = {}
    nodes = list[Node]()
    for before in graph.nodes:
        node = substitution.resolved(before)
        key = _key(graph, node)
        if key is not None and key in first:
            pairs = list(zip(node.writes, first[key], strict=True))
            if all(
                substitution.is_replaceable(mine.buffer, before) and substitution.stays(theirs, mine.buffer)
                for mine, theirs in pairs
            ):
                for mine, theirs in pairs:
                    substitution.replace(mine.buffer, theirs)
                continue
        if key is not None:
            first[key] = node.writes
        nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else graph.with_nodes(nodes)


def _key(graph: Graph, node: Node) -> Hashable | None:
    """The key of equal nodes; None for a node that has no equal."""
    written = [value.buffer for value in node.writes]
    if not written or any(value.buffer in written for value in node.reads):
        return None
    if any(getattr(command, "varying", ()) for command in node.commands):
        return None
    if not (node.op or all(isinstance(command, BoundFill) for command in node.commands)):
        return None  # a command of the library may do more than its bindings say, such as note an error
    if node.op and REGISTRY[node.op].family == "random":
        return None
    if any(isinstance(command, HostCall) for command in node.commands) and "Foreign(" in repr(node.arguments):
        return None  # what tells it from others is in the function that it calls
    places = {number: -position - 1 for position, number in enumerate(written)}
    result = node.result
    if isinstance(result, Operand):
        result = replace(result, value=Value(places.get(result.value.buffer, result.value.buffer), 1))
    key = (
        node.recomputation,
        node.name,
        node.op,
        node.operands,
        node.arguments,
        # 1, 1.0 and True are equal, and so are 0.0 and -0.0
        tuple((type(one), repr(one)) for one in node.operands if not isinstance(one, Operand)),
        tuple((type(one), repr(one)) for _, one in node.arguments),
        node.reads,
        result,
        tuple(_command_key(bound_elsewhere(command, places)) for command in node.commands),
        tuple((graph.buffers[number].nbytes) for number in written),
    )
    try:
        hash(key)
    except TypeError:  # an argument is a list
        return None
    return key


def _command_key(command: Command) -> Hashable:
    """A command, or of one of the host, whose function is another object each time, what it binds."""
    if isinstance(command, HostCall):
        return command.name, command.bindings, command.writes
    return command
