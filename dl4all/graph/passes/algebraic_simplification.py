"""Algebraic simplification: ops that change nothing are left out.

Only identities that hold bit for bit, for infinities, nan and zeros of either sign, too: ``x * 1`` is x, and
``x + 0.0`` is not, where x is -0.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dl4all.graph.ir.graph import Argument, Graph, Node, Operand, Value
from dl4all.graph.passes.substitution import Substitution
from dl4all.graph.passes.uniform_values import filled_word, number_of
from dl4all.ops.core.tensor_base import contiguous_strides


def algebraic_simplification(graph: Graph) -> Graph:
    """A graph without the ops whose result is one of their operands.

    >>> from dl4all.graph.ir.parser import parse_graph
    >>> graph = parse_graph('''graph cpu
    ... buffer @0: input, 4 bytes
    ... buffer @1: temporary, 4 bytes
    ... buffer @2: output, 4 bytes
    ... inputs @0
    ... %1: float32[1] = mul(%0.0: float32[1], 1.0)
    ... %2: float32[1] = exp(%1)
    ... return %2
    ... ''')
    >>> [(node.name, str(node.reads[0])) for node in algebraic_simplification(graph).nodes]
    [('exp', '%0.0')]
    """
    known = _Known()
    substitution = Substitution(graph)
    nodes = list[Node]()
    for before in graph.nodes:
        node = substitution.resolved(before)
        word = filled_word(graph, node)
        if word is not None:
            known.words[node.writes[0]] = word
        result, same = node.result, _equal_operand(known, node)
        if result is not None and same is not None and _covers(graph, same, result):
            number = result.value.buffer
            if (
                node.writes == (result.value,)
                and substitution.is_replaceable(number, before)
                and substitution.stays(same.value, number)
            ):
                substitution.replace(number, same.value)
                continue
        if result is not None:
            known.makers[result.value] = node
        nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else graph.with_nodes(nodes)


class _Known:
    """Facts about the values so far: those that are one number, and the nodes that made the others."""

    def __init__(self) -> None:
        self.words: dict[Value, int] = {}
        self.makers: dict[Value, Node] = {}

    def number(self, operand: Argument) -> Any:
        return number_of(self.words, operand)

    def maker(self, operand: Operand) -> Node | None:
        """The node whose whole result an operand is."""
        maker = self.makers.get(operand.value)
        return maker if maker is not None and maker.result == operand else None


def _covers(graph: Graph, same: Operand, result: Operand) -> bool:
    """Whether an operand's memory holds the result's elements, from its start on and in the same order."""
    return (
        same.dtype == result.dtype
        and same.elements == result.elements
        and not (same.offset or result.offset)
        and same.strides == contiguous_strides(same.shape)
        and result.strides == contiguous_strides(result.shape)
        and graph.buffers[same.value.buffer].nbytes >= graph.buffers[result.value.buffer].nbytes
    )


def _equal_operand(known: _Known, node: Node) -> Operand | None:
    """The operand that the result is equal to, if there is one."""
    rule = RULES.get(node.op)
    if rule is None or not node.operands or node.parts:
        return None
    found = rule(known, node, dict(node.arguments))
    return found if isinstance(found, Operand) else None


# Rules: each returns the operand that the result is equal to, or None.

Arguments = Mapping[str, Any]
Rule = Callable[[_Known, Node, Arguments], Argument]


def _is(number: Any, expected: float) -> bool:
    """Whether a number is known and is the expected one, with its sign where that is 0."""
    if not isinstance(number, (int, float, np.number, np.bool_)):
        return False
    return bool(number == expected) and math.copysign(1.0, number) == math.copysign(1.0, expected)


def _integers(node: Node) -> bool:
    """Whether the result has no zero with a sign."""
    return node.result is not None and np.dtype(node.result.dtype).kind in "iu"


def _add(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """``x + -0.0``; of ints ``x + 0``."""
    zero = 0.0 if _integers(node) else -0.0
    a, b = node.operands
    alpha, number = arguments.get("alpha", 1), known.number(b)
    if number is not None and _is(number * alpha if alpha != 1 else number, zero):
        return a
    return b if _is(known.number(a), zero) and alpha == 1 else None


def _sub(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """``x - 0.0``."""
    a, b = node.operands
    return a if arguments.get("alpha", 1) == 1 and _is(known.number(b), 0.0) else None


def _mul(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """``x * 1``."""
    a, b = node.operands
    return a if _is(known.number(b), 1.0) else b if _is(known.number(a), 1.0) else None


def _right_one(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """``x / 1``; the type of the result says whether x was converted."""
    return node.operands[0] if _is(known.number(node.operands[1]), 1.0) else None


def _involution(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """``-(-x)``."""
    maker = known.maker(node.operands[0]) if isinstance(node.operands[0], Operand) else None
    return maker.operands[0] if maker is not None and maker.op == node.op else None


def _projection(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """``relu(relu(x))``: the inner one."""
    maker = known.maker(node.operands[0]) if isinstance(node.operands[0], Operand) else None
    return node.operands[0] if maker is not None and maker.op == node.op else None


def _copy(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """A copy of contiguous elements."""
    return node.operands[0]


def _sum_to(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """A sum over no axis. Kernels lose the sign of -0.0 there, the op's body does not."""
    [x] = node.operands
    return x if isinstance(x, Operand) and arguments["shape"] == x.shape else None


def _cast(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """To the dtype that x has, or back from one that holds every element of x."""
    [x] = node.operands
    if not isinstance(x, Operand) or node.result is None:
        return None
    maker = known.maker(x)
    if maker is not None and maker.op == "cast" and isinstance(maker.operands[0], Operand):
        source = maker.operands[0]
        if source.dtype == node.result.dtype and np.can_cast(source.dtype, x.dtype, "safe"):
            return source
    return x if x.dtype == node.result.dtype else None


def _where(known: _Known, node: Node, arguments: Arguments) -> Argument:
    """With a condition that is the same throughout."""
    condition, a, b = node.operands
    number = known.number(condition)
    return None if number is None else a if number else b


RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "true_divide": _right_one,
    "pow": _right_one,
    "neg": _involution,
    "logical_not": _involution,
    "bitwise_not": _involution,
    "abs": _projection,
    "ceil": _projection,
    "floor": _projection,
    "relu": _projection,
    "round_even": _projection,
    "trunc": _projection,
    "clone": _copy,
    "sum_to": _sum_to,
    "cast": _cast,
    "where": _where,
}
