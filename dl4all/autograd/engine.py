"""Going back through the graph: each node once, after everything that used its outputs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dl4all.errors import GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.tape import Edge, Gradient, Hook, Node
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase, all_samples
from dl4all.ops.elementwise.arithmetic import add, clone

Place = tuple[Any, int]
"""Where gradients gather: (node, output), or (None, the identity of a leaf)."""


class _Gathered:
    """Gradients on their way."""

    def __init__(self) -> None:
        self.of_leaves: dict[int, tuple[TensorBase, TensorBase]] = {}  # the leaf and its gradient
        self._of_nodes: dict[Node, list[Gradient]] = {}
        self._waiting: list[tuple[int, Node]] = []  # a heap; numbers differ, so nodes are never compared

    def add(self, edge: Edge | None, gradient: Gradient) -> None:
        """Send a gradient along an edge."""
        if edge is None or gradient is None:
            return
        if edge.leaf is not None:
            _, present = self.of_leaves.get(id(edge.leaf), (None, None))
            self.of_leaves[id(edge.leaf)] = (edge.leaf, _sum(present, gradient))
            return
        node = edge.node
        assert node is not None
        if node not in self._of_nodes:
            self._of_nodes[node] = [None] * len(node.outputs)
            heapq.heappush(self._waiting, (-node.number, node))
        grads = self._of_nodes[node]
        grads[edge.output] = _sum(grads[edge.output], gradient)

    def next(self) -> tuple[Node, list[Gradient]] | None:
        """The node made last among those with gradients: what used its outputs was made later still."""
        if not self._waiting:
            return None
        node = heapq.heappop(self._waiting)[1]
        return node, self._of_nodes.pop(node)


def _sum(present: Gradient, more: TensorBase) -> TensorBase:
    total: TensorBase = more if present is None else add(present, more)
    return total


def backpropagate(
    roots: Sequence[TensorBase],
    seeds: Sequence[TensorBase],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Sequence[TensorBase] | None = None,
) -> list[Gradient]:
    """Gradients of the roots, each weighted by its seed.

    Without `targets` they are added to the leaves' ``grad``; with, they are returned, None for a target
    that the roots do not depend on.

    Raises:
        GradientError: the graph was freed, or what it needs was changed.
    """
    wanted = [_place(tape.edge_of(target)) for target in targets or ()]
    found: dict[Place, TensorBase] = {}
    on_the_way = None if targets is None else _nodes_before(set(wanted), roots)
    gathered = _Gathered()
    with tape.gradients(create_graph):
        for root, seed in zip(roots, seeds, strict=True):
            gathered.add(tape.edge_of(root), seed)
        while (step := gathered.next()) is not None:
            node, grads = step
            for output, gradient in enumerate(grads):
                if gradient is not None:
                    grads[output] = gradient = _after_hooks(node.hooks.get(output, {}).values(), gradient)
                    found[node, output] = gradient
                    _retain(node, output, gradient)
            if on_the_way is None or node in on_the_way:
                of_inputs = _inputs_gradients(node, grads, create_graph)
                for edge, gradient in zip(node.edges, of_inputs, strict=True):
                    gathered.add(edge, gradient)
            if not retain_graph:
                node.free()
            found = {place: g for place, g in found.items() if place in wanted}
        own = {id(seed.storage) for seed in seeds}
        for leaf, gradient in gathered.of_leaves.values():
            gradient = _after_hooks(leaf.grad_meta.hooks.values(), gradient)
            if targets is None:
                _accumulate(leaf, gradient, own)
            found[None, id(leaf)] = gradient
    return [found.get(place) for place in wanted]


def _place(edge: Edge | None) -> Place:
    if edge is None:
        raise GradientError("[grad] a tensor was given that does not require gradients; use requires_grad_()")
    return (edge.node, edge.output) if edge.leaf is None else (None, id(edge.leaf))


def _nodes_before(places: set[Place], roots: Iterable[TensorBase]) -> set[Node]:
    """The nodes whose inputs' gradients are needed to come to one of the places."""
    seen: dict[int, Node] = {}
    stack = [tape.edge_of(root) for root in roots]
    while stack:
        edge = stack.pop()
        if edge is not None and edge.node is not None and edge.node.number not in seen:
            seen[edge.node.number] = edge.node
            stack += edge.node.edges
    before: set[Node] = set()
    for _, node in sorted(seen.items()):
        edges = [edge for edge in node.edges if edge is not None]
        if any(_place(edge) in places or edge.node in before for edge in edges):
            before.add(node)
    return before


def _inputs_gradients(node: Node, grads: list[Gradient], create_graph: bool) -> Sequence[Gradient]:
    try:
        found = node.apply(grads, connected=create_graph)
    except Exception as error:
        if node.trace and hasattr(error, "add_note"):  # Python 3.11
            error.add_note(_origin(node))
        raise
    for edge, given, gradient in zip(node.edges, node.inputs, found, strict=True):
        if edge is None or gradient is None:
            continue
        assert given is not None
        shape, dtype = given
        if gradient.shape != shape or gradient.dtype != dtype:
            raise GradientError(
                f"[{node.name}] the gradient of an input of shape {shape} and dtype {dtype} has "
                f"shape {gradient.shape} and dtype {gradient.dtype}"
            )
        if tape.state.detect_anomaly and not np.isfinite(all_samples(gradient).on_host()).all():
            raise GradientError(f"[{node.name}] its gradient has nan or inf.{_origin(node)}")
    return found


def _origin(node: Node) -> str:
    return f"\n[{node.name}] was called here:\n{node.trace}"


def _after_hooks(hooks: Iterable[Hook], gradient: TensorBase) -> TensorBase:
    for hook in tuple(hooks):
        changed = hook(gradient)
        if changed is not None:
            gradient = changed
    return gradient


def _retain(node: Node, output: int, gradient: TensorBase) -> None:
    tensor = node.retained[output]() if output in node.retained else None
    if tensor is not None:
        meta = tensor.grad_meta
        meta.grad = gradient if meta.grad is None else add(meta.grad, gradient)


def _accumulate(leaf: TensorBase, gradient: TensorBase, own: set[int]) -> None:
    """Add to a leaf's ``grad``, which shares its memory with nobody: the user may change it in place."""
    meta = leaf.grad_meta
    if isinstance(gradient, BatchedTensorBase) and not isinstance(leaf, BatchedTensorBase):
        gradient = gradient.sum_over_samples()
    if meta.grad is not None:
        meta.grad = add(meta.grad, gradient)
        return
    shared = id(gradient.storage) in own or not gradient.is_contiguous() or gradient.grad_meta is not None
    own.add(id(gradient.storage))
    meta.grad = clone(gradient) if shared and gradient.grad_meta is None else gradient
