"""Dead code: nodes whose results nobody sees are left out."""

from __future__ import annotations

from dl4all.graph.ir.graph import Graph, Node, Value


def dead_code(graph: Graph) -> Graph:
    """A graph without the nodes that what is kept does not depend on.

    Sources of varying numbers are asked as before, so that a random generator goes on by as much.

    >>> from dl4all.graph.ir.parser import parse_graph
    >>> graph = parse_graph('''graph cpu
    ... buffer @0: input, 4 bytes
    ... buffer @1: temporary, 4 bytes
    ... buffer @2: output, 4 bytes
    ... inputs @0
    ... %1: float32[1] = exp(%0.0: float32[1])
    ... %2: float32[1] = relu(%0.0)
    ... return %2
    ... ''')
    >>> [node.name for node in dead_code(graph).nodes]
    ['relu']
    """
    needed: set[Value] = {*graph.kept, *(output.value for output in graph.outputs)}
    live = list[Node]()
    for node in reversed(graph.nodes):
        if node.writes and needed.isdisjoint(node.writes):  # one that writes nothing is there for its effect
            continue
        live.append(node)
        needed.difference_update(node.writes)
        needed.update(node.reads)
        needed.update(operand.value for operand in node.tensors)
    if len(live) == len(graph.nodes):
        return graph
    return graph.with_nodes(reversed(live))
