"""Concatenation: gradients of slices that are added up are copied to their places instead.

Where a call uses several slices of a tensor, such as queries, keys and values that one product has computed,
each gradient is put into zeros of the tensor's shape, and these are added. Slices that do not overlap need
neither zeros nor sums. If the sum is only copied to another layout then, its parts are written there at once.
Those that lie in one tensor already, and sums with holes, are left to
:mod:`dl4all.graph.passes.slice_gradients`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import Dl4allError
from dl4all.graph.ir.graph import Graph, Node, Operand, Shape, Value, is_private, readers, writers
from dl4all.graph.ir.stand_ins import is_known
from dl4all.graph.tracing.recapture import CannotRecapture, Draft
from dl4all.ops.core.strides import basic, view_strides
from dl4all.ops.core.tensor_base import contiguous_strides

MOST_ELEMENTS = 1 << 24
"""Of a tensor: which of them slices cover is found out one by one."""


class _Tree(NamedTuple):
    """A sum of slices' gradients: the nodes that put them in their places, the sums, and the result."""

    leaves: list[int]  # positions
    inner: list[int]
    result: Operand


def concatenation(graph: Graph) -> Graph:
    """A graph in which sums of slices' gradients are made by copies.

    The sign of a zero may be another one: ``0.0 + -0.0`` is 0.0.

    >>> import dl4all as dl
    >>> from dl4all.graph.tracing.trace import trace
    >>> def gradient(g, h):
    ...     put = dl.ops.index_backward
    ...     return (put(g, key=(0,), shape=(2, 3)) + put(h, key=(1,), shape=(2, 3))).exp()
    >>> graph = trace(gradient, dl.ones(3, device="null:0"), dl.ones(3, device="null:0"))
    >>> [node.name for node in graph.nodes], [node.name for node in concatenation(graph).nodes]
    (['index_backward', 'index_backward', 'add', 'exp'], ['concatenation', 'exp'])
    """
    if not any(node.op == "index_backward" for node in graph.nodes):
        return graph
    search = _Search(graph)
    draft = Draft(graph)
    made: dict[int, Node] = {}
    gone: set[int] = set()
    for root in reversed(range(len(graph.nodes))):  # the whole of a sum comes before its parts
        tree = None if root in gone else search.tree(root)
        if tree is None:
            continue
        found = search.concatenated(draft, tree, root)
        if found is not None:
            positions, node = found
            made[positions[-1]] = node
            gone.update(positions)
    if not made:
        return graph
    return graph.with_nodes(
        made.get(position, node)
        for position, node in enumerate(graph.nodes)
        if position in made or position not in gone
    )


class _Search:
    """Look-ups of the nodes of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._readers = readers(graph)
        self._writers = writers(graph)
        self._writes = defaultdict[int, list[tuple[int, int]]](list)  # versions and positions by buffer
        for position, node in enumerate(graph.nodes):
            for value in node.writes:
                self._writes[value.buffer].append((value.version, position))

    def tree(self, root: int) -> _Tree | None:
        """The sum that ends at a position, if all that it adds are slices' gradients that do not overlap."""
        node = self._graph.nodes[root]
        if node.op != "add" or node.result is None:
            return None
        leaves, inner = list[int](), list[int]()
        pending = [root]
        while pending:
            position = pending.pop()
            one = self._graph.nodes[position]
            if not _is_plain(one) or (position != root and not self._is_used_once(one)):
                return None
            if one.op == "index_backward":
                leaves.append(position)
            elif one.op == "add" and dict(one.arguments).get("alpha", 1) == 1:
                inner.append(position)
                for operand in one.operands:
                    if not isinstance(operand, Operand) or operand.value not in self._writers:
                        return None
                    maker = self._writers[operand.value]
                    if self._graph.nodes[maker].result != operand or operand.shape != node.result.shape:
                        return None
                    pending.append(maker)
            else:
                return None
        keys = [dict(self._graph.nodes[position].arguments)["key"] for position in leaves]
        if not _cover(keys, node.result.shape):
            return None
        return _Tree(sorted(leaves), sorted(inner), node.result)

    def concatenated(self, draft: Draft, tree: _Tree, root: int) -> tuple[list[int], Node] | None:
        """The positions of a tree and of copies before and behind it, and the node in their place."""
        nodes = self._graph.nodes
        target, strides, last = tree.result, tree.result.strides, root
        parts = [*tree.leaves, *tree.inner]
        copy = self._only_copy(tree.result)
        if copy is not None:
            found = _strides_in(nodes[copy], tree.result)
            if found is not None:
                strides, last = found, copy
                target = nodes[copy].result or target
                parts.append(copy)
        pairs = list[tuple[Operand, Operand]]()
        for leaf in tree.leaves:
            [source] = nodes[leaf].tensors
            if (uncopied := self._uncopied(source)) is not None:
                parts.append(self._writers[source.value])
                source = uncopied
            shape, steps, offset = basic(dict(nodes[leaf].arguments)["key"], tree.result.shape, strides, 0)
            pairs.append((Operand(target.value, shape, target.dtype, steps, offset), source))
            if not self._stays(source.value, last):
                return None
        if len({source.value for _, source in pairs}) == 1:
            return None  # slice_gradients may read it where it lies
        try:
            commands = draft.copies(pairs)
        except (CannotRecapture, Dl4allError):
            return None
        sources = tuple(source for _, source in pairs)
        parts.sort()
        made = Node(
            "concatenation",
            operands=sources,
            result=target,
            reads=tuple(dict.fromkeys(source.value for source in sources)),
            writes=(target.value,),
            commands=commands,
            parts=tuple(nodes[position] for position in parts),
            line=nodes[root].line,
        )
        return parts, made

    def _is_used_once(self, node: Node) -> bool:
        [value] = node.writes
        return is_private(self._graph, value) and len(self._readers[value]) == 1

    def _uncopied(self, source: Operand) -> Operand | None:
        """The source of a copied operand, if nothing else reads the copy: copies read any strides."""
        position = self._writers.get(source.value)
        copy = None if position is None else self._graph.nodes[position]
        if copy is None or copy.op != "clone" or not _is_plain(copy) or not self._is_used_once(copy):
            return None
        [before] = copy.tensors
        if source.offset or source.strides != contiguous_strides(source.shape):
            return None
        strides = view_strides(before.shape, before.strides, source.shape)
        if strides is None or source.elements != before.elements:
            return None
        return Operand(before.value, source.shape, source.dtype, strides, before.offset)

    def _only_copy(self, result: Operand) -> int | None:
        """The position of a clone that is the only reader of a result."""
        found = self._readers[result.value]
        if len(found) != 1 or not is_private(self._graph, result.value):
            return None
        copy = self._graph.nodes[found[0]]
        return found[0] if copy.op == "clone" and _is_plain(copy) else None

    def _stays(self, value: Value, position: int) -> bool:
        """Whether a value is not overwritten up to a position."""
        return not any(
            version > value.version and at <= position for version, at in self._writes[value.buffer]
        )


def _is_plain(node: Node) -> bool:
    """Whether a node computes a whole new buffer, and nothing else."""
    result = node.result
    return (
        result is not None
        and is_known(node)
        and not node.parts
        and node.writes == (result.value,)
        and result.value.version == 1
        and not result.offset
        and result.strides == contiguous_strides(result.shape)
        and all(operand.dtype == result.dtype for operand in node.tensors)
    )


def _cover(keys: list[Any], shape: Shape) -> bool:
    """Whether slices cover each element of a tensor exactly once."""
    if not 0 < math.prod(shape) <= MOST_ELEMENTS:
        return False
    counts = np.zeros(shape, np.uint8)
    for key in keys[:256]:
        counts[key] += 1
    return len(keys) <= 255 and bool((counts == 1).all())


def _strides_in(copy: Node, whole: Operand) -> Shape | None:
    """The strides of a tensor's axes in a copy of it whose axes have another order.

    >>> whole = Operand(Value(0, 1), (2, 3, 5), "float32", (15, 5, 1))
    >>> turned = Operand(Value(0, 1), (3, 2, 5), "float32", (5, 15, 1))
    >>> copied = Operand(Value(1, 1), (3, 2, 5), "float32", (10, 5, 1))
    >>> _strides_in(Node("clone", "clone", (turned,), result=copied), whole)
    (5, 10, 1)
    """
    [view], result = copy.tensors, copy.result
    if result is None or view.offset or view.elements != whole.elements:
        return None
    axes: Mapping[tuple[int, int], int] = {
        (size, stride): ahead
        for size, stride, ahead in zip(view.shape, view.strides, result.strides, strict=True)
        if size > 1
    }
    places = list(zip(whole.shape, whole.strides, strict=True))
    if any(size > 1 and (size, stride) not in axes for size, stride in places):
        return None
    return tuple(axes.get(place, 0) for place in places)
