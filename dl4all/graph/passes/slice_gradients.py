"""Gradients of slices of one tensor become one tensor without zeros that are added.

Each slice's gradient is a tensor of zeros with a copy of the gradient in it, and those of several slices are
added up. Where the slices do not overlap, all of them are copied into one tensor. Where the copies are one
piece of memory already, as the gradients of query, key and value are, that is read instead, and nothing is
copied. Nothing changes but the sign of zeros: -0.0 stays what it is where 0.0 would be added to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dl4all.errors import Dl4allError
from dl4all.graph.codegen.epilogue import whole_of
from dl4all.graph.ir.graph import (
    BoundFill,
    BoundLaunch,
    Graph,
    Node,
    Operand,
    Value,
    is_private,
    readers,
)
from dl4all.graph.tracing.recapture import CannotRecapture, Draft
from dl4all.ops.core.kernels.push_block import push_constants
from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.ops.memory.copy import COPY

WORD_BYTES = {shader: nbytes for nbytes, shader in COPY[1].items()}
"""The kernels that copy along one axis, and the size of what they move at a time."""


class _Piece(NamedTuple):
    """A copy of a piece of a value, in bytes."""

    start: int
    nbytes: int
    source: Value
    source_start: int
    command: BoundLaunch

    @property
    def end(self) -> int:
        return self.start + self.nbytes


class _Sum(NamedTuple):
    """A tensor of zeros but for pieces, in order; `positions` are those of the nodes that make it."""

    positions: tuple[int, ...]
    pieces: tuple[_Piece, ...]


def slice_gradients(graph: Graph) -> Graph:
    """The graph with the gradients of slices of each tensor in one node, or in none."""
    by_reader = readers(graph)
    sums = _sums(graph, by_reader)
    if not sums:
        return graph
    draft = Draft(graph)
    nodes: list[Node | None] = list(graph.nodes)
    for value, one in sums.items():
        root = one.positions[-1]
        sources = [piece.source for piece in one.pieces]
        following = by_reader.get(value, [])
        view = _view(graph, value, one)
        if view is not None and _stay(graph, sources, one.positions[0], max(following, default=root)):
            found = [_reading(draft, nodes[reader], value, view) for reader in following]
            if all(found):
                for reader, node in zip(following, found, strict=True):
                    nodes[reader] = node
                for position in one.positions:
                    nodes[position] = None
                continue
        if _stay(graph, sources, one.positions[0], root):
            nodes[root] = _joined(graph, value, one)
            for position in one.positions[:-1]:
                nodes[position] = None
    left = [node for node in nodes if node is not None]
    return replace(graph, buffers=draft.buffers).with_nodes(left)


def _sums(graph: Graph, by_reader: Mapping[Value, Sequence[int]]) -> dict[Value, _Sum]:
    """The sums of slices' gradients that belong to no larger one, by their value."""
    found: dict[Value, _Sum] = {}
    for position, node in enumerate(graph.nodes):
        result = node.result
        if result is None or result.offset or result.strides != contiguous_strides(result.shape):
            continue
        piece = _piece(graph, node)
        if piece is not None:
            found[result.value] = _Sum((position,), (piece,))
        elif node.op == "add" and node.writes == (result.value,) and dict(node.arguments).get("alpha") == 1:
            terms = [operand for operand in node.tensors if operand.value in found]
            if len(terms) < 2 or any(replace(term, value=result.value) != result for term in terms):
                continue
            values = [term.value for term in terms]
            if not all(is_private(graph, value) and len(by_reader[value]) == 1 for value in values):
                continue
            pieces = [piece for value in values for piece in found[value].pieces]
            pieces.sort(key=lambda piece: piece.start)
            if all(first.end <= second.start for first, second in itertools.pairwise(pieces)):
                positions = {position, *(other for value in values for other in found.pop(value).positions)}
                found[result.value] = _Sum(tuple(sorted(positions)), tuple(pieces))
    return found


def _piece(graph: Graph, node: Node) -> _Piece | None:
    """The piece that the gradient of a slice copies among its zeros; None where it is not one."""
    if node.op != "index_backward" or len(node.commands) != 2 or len(node.writes) != 1:
        return None
    fill, copy = node.commands
    if not isinstance(fill, BoundFill) or not isinstance(copy, BoundLaunch):
        return None
    width = WORD_BYTES.get(copy.launch.shader)
    if width is None or fill.word or len(node.reads) != 1:
        return None
    source, target = copy.bindings
    if fill.binding != target or target != whole_of(graph, node.writes[0].buffer) or source.offset:
        return None
    push = push_constants(copy.launch)
    if (push.sizes, push.x_strides, push.y_strides) != (push.n, 1, 1):
        return None
    return _Piece(push.y_offset * width, push.n * width, node.reads[0], push.x_offset * width, copy)


def _view(graph: Graph, value: Value, one: _Sum) -> tuple[Value, int] | None:
    """The value, and the byte in it, that holds a whole sum; None where there is none."""
    first = one.pieces[0]
    is_run = all(
        piece.source == first.source and piece.source_start - piece.start == first.source_start
        for piece in one.pieces
    )
    if first.start or not is_run or not _covers(graph, value, one) or not is_private(graph, value):
        return None
    return first.source, first.source_start


def _covers(graph: Graph, value: Value, one: _Sum) -> bool:
    """Whether no zero is left."""
    return sum(piece.nbytes for piece in one.pieces) == graph.buffers[value.buffer].nbytes


def _stay(graph: Graph, values: Sequence[Value], first: int, last: int) -> bool:
    """Whether values stay as they are from one node to another."""
    return not any(
        written.buffer == value.buffer and written.version > value.version
        for node in graph.nodes[first:last]
        for written in node.writes
        for value in values
    )


def _reading(draft: Draft, node: Node | None, value: Value, view: tuple[Value, int]) -> Node | None:
    """A node that reads a part of another value; None where its commands for that cannot be found."""
    if node is None or not node.op or node.parts or node.result is None:
        return None
    operands = list(node.operands)
    for position, operand in enumerate(operands):
        if isinstance(operand, Operand) and operand.value == value:
            start, rest = divmod(view[1], 4)
            if rest or operand.dtype != "float32":
                return None
            operands[position] = replace(operand, value=view[0], offset=start + operand.offset)
    if {written.buffer for written in node.writes} & {read.buffer for read in node.reads}:
        return None  # it works in place
    try:
        return draft.node(node.op, operands, dict(node.arguments), node.result, node.line)
    except (CannotRecapture, Dl4allError):
        return None


def _joined(graph: Graph, value: Value, one: _Sum) -> Node:
    """One node that copies all pieces, and fills what is left with zeros."""
    target = whole_of(graph, value.buffer)
    copies = tuple(
        replace(piece.command, bindings=(piece.command.bindings[0], target)) for piece in one.pieces
    )
    zeros = () if _covers(graph, value, one) else (BoundFill(target, 0),)
    last = graph.nodes[one.positions[-1]]
    parts = tuple(graph.nodes[position] for position in one.positions)
    return Node(
        name="index_backward",
        operands=tuple(operand for part in parts if part.op == "index_backward" for operand in part.operands),
        result=last.result,
        reads=tuple(dict.fromkeys(piece.source for piece in one.pieces)),
        writes=last.writes,
        commands=(*zeros, *copies),
        parts=parts,
        line=last.line,
    )
