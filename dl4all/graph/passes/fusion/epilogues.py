"""Epilogues: what is computed of each result of a product or convolution moves into its kernel.

A bias, an activation, a residual connection, any elementwise ops whose results have the product's shape and
are of use to nobody else: their launches vanish, and so do the tensors between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from dl4all.graph.codegen.epilogue import epilogue_of, is_anchor, with_epilogue
from dl4all.graph.ir.graph import Graph, Node, Value, buffers_of
from dl4all.graph.passes.device_limits import max_bindings

MAX_NODES = 16  # of an epilogue


def epilogues(graph: Graph) -> Graph:
    """The graph with elementwise nodes in the kernels of the products and convolutions before them.

    A node that takes others into its kernels runs where the last of them ran.
    """
    bindings = max_bindings(graph.device)
    by_value = _readers(graph)
    nodes: list[Node | None] = list(graph.nodes)
    # The last anchor first: of two whose results are added, the later one does not have to move.
    for position in reversed(range(len(nodes))):
        anchor = nodes[position]
        if anchor is None or anchor is not graph.nodes[position] or not is_anchor(anchor):
            continue
        positions, merged = _longest(graph, nodes, by_value, position, bindings)
        if merged is not None:
            for absorbed in (position, *positions):
                nodes[absorbed] = None
            nodes[positions[-1]] = merged
    return graph.with_nodes(node for node in nodes if node is not None)


def _longest(
    graph: Graph,
    nodes: Sequence[Node | None],
    by_value: Mapping[Value, Sequence[int]],
    position: int,
    bindings: int,
) -> tuple[list[int], Node | None]:
    """The positions of the most nodes that an anchor can take into its kernels, and the node of them all."""
    anchor = graph.nodes[position]
    assert anchor.result is not None
    values = [anchor.result.value]  # of the anchor and the nodes behind it
    taken: list[int] = []
    best: tuple[list[int], Node | None] = ([], None)
    while len(taken) < MAX_NODES and _is_inner(graph, values[-1]):
        left = {reader for value in values for reader in by_value.get(value, ())} - set(taken)
        following = min(left, default=None)
        if following is None or nodes[following] is not graph.nodes[following]:
            break
        taken.append(following)
        chain = [graph.nodes[other] for other in taken]
        result = chain[-1].result
        if result is None or epilogue_of(anchor.result, chain) is None:
            break
        inner = {reader for value in values for reader in by_value.get(value, ())}
        values.append(result.value)
        if inner <= set(taken):
            merged = with_epilogue(graph, anchor, chain, bindings)
            if merged is None or not _can_move(nodes, anchor, merged, position, taken):
                break
            best = (list(taken), merged)
    return best


def _can_move(
    nodes: Sequence[Node | None], anchor: Node, merged: Node, position: int, taken: Sequence[int]
) -> bool:
    """Whether a merged node can run in place of the last of the nodes in it, not of the anchor.

    What it reads must not be overwritten in between, and what it writes must not be in use.
    """
    written = {value.buffer for value in anchor.writes}
    own = written | buffers_of(anchor) - {value.buffer for value in anchor.reads}
    for other in range(position + 1, taken[-1]):
        node = nodes[other]
        if node is None or other in taken:
            continue
        versions = {value.buffer: value.version for value in node.writes}
        if own & buffers_of(node) or any(versions.get(b, 0) > version for b, version in merged.reads):
            return False
    return True


def _readers(graph: Graph) -> dict[Value, list[int]]:
    """The positions of the nodes that need each value, if only for its shape."""
    found = defaultdict[Value, list[int]](list)
    for position, node in enumerate(graph.nodes):
        for value in dict.fromkeys((*node.reads, *(tensor.value for tensor in node.tensors))):
            found[value].append(position)
    return found


def _is_inner(graph: Graph, value: Value) -> bool:
    """Whether nothing outside of the graph sees a value. Of an output it may see the last one."""
    return graph.buffers[value.buffer].kind in ("temporary", "output") and value not in graph.kept
