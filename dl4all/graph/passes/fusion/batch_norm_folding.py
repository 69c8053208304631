"""Folds batch normalisation by captured statistics into the convolution or linear map in front of it.

In inference ``(conv(x, w) + b - mean) * scale + shift``, where scale is ``weight / sqrt(var + eps)``, is a
convolution with the filters ``w * scale`` and the bias ``(b - mean) * scale + shift`` (Jacob et al.,
arXiv:1712.05877, section 3.2). They depend on captured memory alone, so that the preamble computes them once.
Results differ from those of the two ops by rounding, within the tolerances of the convolution.
"""

from __future__ import annotations

from collections.abc import Iterator

from dl4all.graph.ir.graph import Argument, Graph, Node, Operand, is_private, readers
from dl4all.graph.passes.preamble import fixed_values
from dl4all.graph.tracing.recapture import CannotRecapture, Draft, shaped

FOLDABLE = ("conv1d", "conv2d", "conv3d", "linear")
"""Ops of an input, a weight with an output channel for each entry of its first axis, and a bias."""

DTYPES = ("float32", "float64")
"""Of fewer bits the filters would lose some once more."""


def batch_norm_folding(graph: Graph) -> Graph:
    """The graph without batch normalisations that can be folded into the op in front of them."""
    pairs = dict(_pairs(graph))
    if not pairs:
        return graph
    draft, nodes, folded = Draft(graph), list[Node](), set[int]()
    for position, node in enumerate(graph.nodes):
        if position in pairs:
            try:
                nodes += _folded(draft, node, graph.nodes[pairs[position]])
                folded.add(pairs[position])
                continue
            except CannotRecapture:  # the two stay as they are
                pass
        if position not in folded:
            nodes.append(node)
    if not folded:
        return graph
    return Graph(**{**vars(graph), "buffers": draft.buffers}).with_nodes(nodes)


def _pairs(graph: Graph) -> Iterator[tuple[int, int]]:
    """Positions of an op and of the batch normalisation that is all that uses its result."""
    fixed, users = fixed_values(graph), readers(graph)

    def is_fixed(operand: Argument) -> bool:
        return operand is None or (isinstance(operand, Operand) and operand.value in fixed)

    for position, node in enumerate(graph.nodes):
        result = node.result
        if node.op not in FOLDABLE or result is None or not is_private(graph, result.value):
            continue
        following = users.get(result.value, [])
        if len(following) != 1 or not all(map(is_fixed, node.operands[1:])):
            continue
        norm = graph.nodes[following[0]]
        if norm.op != "batch_norm_apply" or norm.operands[0] != result or norm.result is None:
            continue
        if node.op == "linear" and len(result.shape) != 2:  # its channels are the last axis
            continue
        if result.dtype not in DTYPES or not all(map(is_fixed, norm.operands[1:])):
            continue
        # Nobody uses new memory before its first version, so that it can be written earlier.
        value = norm.result.value
        if value.version == 1 and graph.buffers[value.buffer].kind in ("temporary", "output"):
            yield position, following[0]


def _folded(draft: Draft, node: Node, norm: Node) -> list[Node]:
    """The nodes that compute what the two did.

    Raises:
        CannotRecapture
    """
    made = list[Node]()

    def compute(op: str, *operands: Argument) -> Operand:
        made.append(draft.node(op, operands, line=norm.line))
        result = made[-1].result
        assert result is not None
        return result

    x, weight, bias = node.operands
    _, mean, var, norm_weight, norm_bias = norm.operands
    assert isinstance(weight, Operand)
    eps = dict(norm.arguments)["eps"]
    scale = compute("rsqrt", compute("add", var, eps))
    if norm_weight is not None:
        scale = compute("mul", scale, norm_weight)
    filters = compute("mul", weight, shaped(scale, (*scale.shape, *(1,) * (len(weight.shape) - 1))))
    shift = compute("mul", compute("neg", mean) if bias is None else compute("sub", bias, mean), scale)
    if norm_bias is not None:
        shift = compute("add", shift, norm_bias)
    arguments = dict(node.arguments)
    made.append(draft.node(node.op, (x, filters, shift), arguments, norm.result, node.line))
    whole = Node(**{**vars(made[-1]), "parts": (node, norm)})
    return [*made[:-1], whole]
