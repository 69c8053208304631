"""Constant folding: what is computed from numbers alone is computed now, and filled in.

This is about tensors that hold one number throughout, such as the gradient that a loss begins with. What
depends on other constants is computed on the device, once (:mod:`dl4all.graph.passes.preamble`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Binding, BoundFill, Graph, HostCall, Node, Value, bound_bytes
from dl4all.graph.passes.uniform_values import Words, filled_word, number_of, word_of
from dl4all.ops.core.op import REGISTRY

EXACT = frozenset(
    (
        "abs", "add", "cast", "ceil", "clone", "eq", "floor", "ge", "gt", "le", "logical_and", "logical_not",
        "logical_or", "lt", "maximum", "minimum", "mul", "ne", "neg", "relu", "sign", "sub", "trunc", "where",
    )
)  # fmt: skip
"""Ops of which every device gives the same bits, whose elements depend on those at the same index."""

SMALLEST = float(np.finfo(np.float32).tiny)
"""Smaller numbers are 0 on some devices."""


def constant_folding(graph: Graph) -> Graph:
    """A graph in which ops whose operands are one number throughout are fills.

    >>> from dl4all.graph.ir.parser import parse_graph
    >>> graph = parse_graph('''graph cpu
    ... buffer @0: temporary, 8 bytes
    ... buffer @1: output, 8 bytes
    ... fill<>() writes %0
    ...     fill @0 word 0x3f800000
    ... %1: float32[2] = mul(%0: float32[2], 2.0)
    ... return %1
    ... ''')
    >>> constant_folding(graph).nodes[1].commands
    (BoundFill(binding=Binding(buffer=1, offset=0, nbytes=8), word=1073741824),)
    """
    words: dict[Value, int] = {}
    nodes = list[Node]()
    for node in graph.nodes:
        word = filled_word(graph, node)
        if word is None:
            word = _folded_word(words, node)
            if word is not None:
                node = _fill(graph, node, word)
        if word is not None:
            words[node.writes[0]] = word
        nodes.append(node)
    return graph if nodes == list(graph.nodes) else graph.with_nodes(nodes)


def _folded_word(words: Words, node: Node) -> int | None:
    """The word that a node's result consists of; None if the operands are not all known."""
    result = node.result
    if node.op not in EXACT or result is None or node.writes != (result.value,):
        return None
    if any(value.buffer == result.value.buffer for value in node.reads):
        return None
    if any(isinstance(command, HostCall) for command in node.commands):
        return None  # the host has no fills
    numbers = [number_of(words, operand) for operand in node.operands]
    if any(number is None for number in numbers):
        return None
    body: Any = REGISTRY[node.op].body
    arrays = [np.asarray(n) if isinstance(n, np.generic) else n for n in numbers]
    with np.errstate(all="ignore"):
        computed = np.asarray(body(*arrays, **dict(node.arguments)))
    if computed.dtype != result.dtype or computed.shape:
        return None
    if any(_is_tiny(number) for number in (*numbers, computed[()])):
        return None
    return word_of(computed[()])


def _is_tiny(number: Any) -> bool:
    return isinstance(number, (float, np.floating)) and 0 < abs(float(number)) < SMALLEST


def _fill(graph: Graph, node: Node, word: int) -> Node:
    """A node that fills what another one writes."""
    [value] = node.writes
    whole = Binding(value.buffer, 0, bound_bytes(graph.buffers[value.buffer].nbytes))
    return Node("fill", writes=(value,), commands=(BoundFill(whole, word),), line=node.line)
