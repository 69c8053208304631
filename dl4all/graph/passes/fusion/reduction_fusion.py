"""Elementwise nodes move into the reductions and normalisations behind them.

A loss's terms into their sum, a mask into a softmax, the gradient of an activation into that of the batch
norm in front of it: where all readers of an elementwise node's result compute it themselves as they read, its
launch vanishes, and so does the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from dl4all.graph.codegen.elementwise_kernel import is_elementwise
from dl4all.graph.codegen.prologue import prologue_of, slots_of, with_prologue
from dl4all.graph.ir.graph import Graph, Node, is_private
from dl4all.graph.passes.device_limits import max_bindings

MAX_NODES = 16  # of a prologue


def reduction_fusion(graph: Graph) -> Graph:
    """The graph with elementwise nodes in the kernels of the reductions and normalisations behind them."""
    bindings = max_bindings(graph.device)
    nodes: list[Node | None] = list(graph.nodes)
    fronts: dict[int, tuple[Node, ...]] = {}  # what is in front of each anchor, in order
    # From the last node on, so that a chain moves node by node.
    for position in reversed(range(len(nodes))):
        node = graph.nodes[position]
        result = node.result
        if result is None or not is_elementwise(node):
            continue
        if node.writes != (result.value,) or not is_private(graph, result.value):
            continue
        anchors = [
            anchor
            for anchor in range(position + 1, len(nodes))
            if (other := nodes[anchor]) is not None and result.value in other.reads
        ]
        if not anchors:
            continue
        merged = [_merged(graph, position, anchor, fronts.get(anchor, ()), bindings) for anchor in anchors]
        if not all(merged) or not _is_worthwhile(graph, node, anchors, fronts):
            continue
        for anchor, fused in zip(anchors, merged, strict=True):
            nodes[anchor] = fused
            fronts[anchor] = (node, *fronts.get(anchor, ()))
        nodes[position] = None
    return graph.with_nodes(node for node in nodes if node is not None)


def _merged(graph: Graph, position: int, anchor: int, front: tuple[Node, ...], bindings: int) -> Node | None:
    """The node of an anchor with an elementwise node in front of what it has in front already."""
    node, last = graph.nodes[position], graph.nodes[anchor]
    assert node.result is not None
    if len(front) == MAX_NODES or not _lasts(graph, node, position, anchor):
        return None
    fused = with_prologue(graph, last, (node, *front), bindings)
    # An anchor may read the value elsewhere, too.
    return None if fused is None or node.result.value in fused.reads else fused


def _lasts(graph: Graph, node: Node, position: int, anchor: int) -> bool:
    """Whether what a node reads is still there when an anchor runs."""
    return not any(
        written.buffer == value.buffer and written.version > value.version
        for other in range(position + 1, anchor)
        for written in graph.nodes[other].writes
        for value in node.reads
    )


def _is_worthwhile(
    graph: Graph, node: Node, anchors: Sequence[int], fronts: dict[int, tuple[Node, ...]]
) -> bool:
    """Whether it costs less to compute a node's result wherever it is read than to write it once.

    What is read once is. Expressions that call functions are computed no more often than before, and others
    where that reads no more bytes.
    """
    readings = 0
    for anchor in anchors:
        value = (fronts.get(anchor, ()) or (node,))[-1].result
        assert value is not None
        slots = slots_of(graph.nodes[anchor], value) or ()
        readings += sum(slot.passes for slot in slots if slot is not None)
    if readings <= 1:
        return True
    prologue = prologue_of((node,), ())
    if prologue is None or prologue.includes:
        return False
    whole = sum(place.period == node.result.elements for place in prologue.places if node.result)
    launches = len(anchors)
    return launches * whole <= whole + 1 + launches
