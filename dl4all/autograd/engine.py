"""Reverse-mode differentiation: visits each node once, after everything that used its outputs."""

from __future__ import annotations

import functools
import heapq
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dl4all.errors import GradientError
from dl4all.ops.core import autocast, tape
from dl4all.ops.core.kernels.host_work import host_work
from dl4all.ops.core.op import empty
from dl4all.ops.core.tape import Edge, Gradient, GradientNode, Hook
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.core.vmap_hook import NODE, BatchedTensorBase, Batching, all_samples
from dl4all.ops.elementwise.arithmetic import add, clone
from dl4all.runtime import fork
from dl4all.scheduler import listeners

LeafReady = Callable[[TensorBase, TensorBase], None]
"""Called with a leaf and its whole gradient while others are still computed."""

Target = tuple[Any, int]
"""The owner of a gradient: (node, output), or (None, the id of a leaf)."""


_LOCKS = tuple(fork.rlock() for _ in range(64))
"""Held while something is added to a tensor's ``grad``: threads lose nothing. One is for many tensors."""


def _lock_of(tensor: TensorBase) -> threading.RLock:
    return _LOCKS[id(tensor) // 64 % len(_LOCKS)]


MOST_PARTS = 64
"""So many gradients of a leaf wait to be added up, each of at most so many elements:"""
FEW_ELEMENTS = 1 << 13


class _PendingGradients:
    """Gradients on their way: sums for leaves, and nodes that wait for their turn."""

    def __init__(self) -> None:
        self._of_leaves: dict[int, tuple[TensorBase, list[TensorBase]]] = {}  # the leaf and parts of its sum
        # By the node's number, negative, so that the heap has the node on top that was made last.
        self._of_nodes: dict[int, tuple[GradientNode, list[Gradient]]] = {}
        self._waiting: list[int] = []

    def add(self, edge: Edge | None, gradient: Gradient) -> None:
        """Send a gradient along an edge."""
        if edge is None or gradient is None:
            return
        node, output, leaf, _, _ = edge
        if node is None:
            assert leaf is not None
            parts = self._of_leaves.setdefault(id(leaf), (leaf, []))[1]
            parts.append(gradient)
            if len(parts) > 1 and (len(parts) == MOST_PARTS or not _are_added_together(gradient)):
                parts[:] = [_total(parts)]
            return
        key = -node.number
        if key not in self._of_nodes:
            self._of_nodes[key] = node, [None] * node.outputs
            heapq.heappush(self._waiting, key)
        grads = self._of_nodes[key][1]
        grads[output] = _sum(grads[output], gradient)

    def take_leaf(self, leaf: TensorBase) -> Gradient:
        """The gradient of a leaf, which is not kept here any longer."""
        found = self._of_leaves.pop(id(leaf), None)
        return None if found is None else _total(found[1])

    def of_leaves(self) -> Iterator[tuple[TensorBase, TensorBase]]:
        """The leaves and their gradients."""
        for leaf, parts in self._of_leaves.values():
            yield leaf, parts[0] if len(parts) == 1 else _total(parts)

    def pop(self) -> tuple[GradientNode, list[Gradient]] | None:
        """The waiting node that was made last: every node that used its outputs was made later."""
        return self._of_nodes.pop(heapq.heappop(self._waiting)) if self._waiting else None


def _sum(present: Gradient, more: TensorBase) -> TensorBase:
    total: TensorBase = more if present is None else add(present, more)
    return total


def _are_added_together(gradient: TensorBase) -> bool:
    """Whether gradients like this one wait for others of their leaf: small ones on the host.

    To start an addition takes longer there than to compute it, and recurrent networks use each of their
    weights in all steps.
    """
    return (
        gradient.device.is_host
        and math.prod(gradient.shape) <= FEW_ELEMENTS
        and not tape.state.enabled
        and not listeners.captured()
        and gradient.device.simulated is None
        and not isinstance(gradient, BatchedTensorBase)
    )


def _total(parts: Sequence[TensorBase]) -> TensorBase:
    """The sum of gradients, added up in their order."""
    first = parts[0]
    if len(parts) < 3 or not _are_added_together(first):
        return functools.reduce(add, parts)
    total: TensorBase = empty(type(first).result_class, first.shape, first.dtype, first.device, "add")
    host_work("add", _add_up, parts, [total])
    return total


def _add_up(*arrays: Any) -> None:
    """Write the sum of all arrays but the last into the last."""
    *parts, total = arrays
    np.add(parts[0], parts[1], out=total)
    for part in parts[2:]:
        np.add(total, part, out=total)


def backpropagate(
    roots: Sequence[TensorBase],
    seeds: Sequence[TensorBase],
    *,
    retain_graph: bool,
    create_graph: bool,
    targets: Sequence[TensorBase] | None = None,
    leaf_ready: LeafReady | None = None,
    first_node: int = 0,
) -> list[Gradient]:
    """Gradients of the roots, each weighted by its seed.

    Without `targets` they are added to the leaves' ``grad``; with, they are returned, None for a target
    that the roots do not depend on. With `leaf_ready` they are given to that function instead, each as soon
    as it is complete. Nodes whose number is lower than `first_node` are not entered.

    Raises:
        GradientError: the graph was freed, or what it needs was changed.
    """
    targets_of_grad = [_target(tape.edge_of(tensor)) for tensor in targets or ()]
    results: dict[Target, Gradient] = dict.fromkeys(targets_of_grad)
    needed_nodes = None if targets is None else _nodes_before(results.keys(), roots)
    pending = _PendingGradients()
    uses = None if leaf_ready is None else _uses_of_leaves(roots)
    with tape.gradients(create_graph), autocast.suspended(), Batching() as batching:
        for root, seed in zip(roots, seeds, strict=True):
            pending.add(tape.edge_of(root), seed)
        while (step := pending.pop()) is not None:
            node, grads = step
            if node.number < first_node:
                for output, gradient in enumerate(grads):
                    if (node, output) in results:
                        results[node, output] = gradient
                continue
            if node.name is NODE:
                batching.begin()
            if tape.state.observer is not None:
                tape.state.observer.entered(node)
            if node.hooks or node.retained or results:
                _show(node, grads, results)
            if needed_nodes is None or node in needed_nodes:
                input_gradients = _input_gradients(node, grads, create_graph)
                for edge, gradient in zip(node.edges, input_gradients, strict=True):
                    pending.add(edge, gradient)
                if leaf_ready is not None and uses is not None:
                    _give_complete(node, uses, pending, leaf_ready)
            if not retain_graph:
                node.free()
        seed_storages = {id(seed.storage) for seed in seeds}
        for leaf, gradient in pending.of_leaves():
            if leaf.grad_meta.hooks:
                gradient = _call_hooks(leaf.grad_meta.hooks.values(), gradient)
            if leaf_ready is not None:
                leaf_ready(leaf, gradient)
            elif targets is None:
                _accumulate(leaf, gradient, seed_storages)
            elif (None, id(leaf)) in results:
                results[None, id(leaf)] = gradient
    return [results[target] for target in targets_of_grad]


def _show(node: GradientNode, grads: list[Gradient], results: dict[Target, Gradient]) -> None:
    """Give the gradients of a node's outputs to hooks, which may change them, and to those who want them."""
    for output, gradient in enumerate(grads):
        if gradient is not None:
            if output in node.hooks:
                grads[output] = gradient = _call_hooks(node.hooks[output].values(), gradient)
            if (node, output) in results:
                results[node, output] = gradient
            _retain(node, output, gradient)


def _target(edge: Edge | None) -> Target:
    if edge is None:
        raise GradientError("[grad] a tensor was given that does not require gradients; use requires_grad_()")
    return (edge.node, edge.output) if edge.leaf is None else (None, id(edge.leaf))


def _uses_of_leaves(roots: Iterable[TensorBase]) -> Counter[int]:
    """The number of edges of the graph that lead to each leaf, by its id."""
    uses = Counter[int]()
    seen: set[GradientNode] = set()
    stack = [tape.edge_of(root) for root in roots]
    while stack:
        edge = stack.pop()
        if edge is None:
            continue
        if edge.leaf is not None:
            uses[id(edge.leaf)] += 1
        elif edge.node is not None and edge.node not in seen:
            seen.add(edge.node)
            stack += edge.node.edges
    return uses


def _give_complete(
    node: GradientNode, uses: Counter[int], pending: _PendingGradients, leaf_ready: LeafReady
) -> None:
    """Give away the gradients of leaves that nothing more is added to, now that this node has run."""
    for edge in node.edges:
        if edge is not None and edge.leaf is not None:
            uses[id(edge.leaf)] -= 1
            if not uses[id(edge.leaf)]:
                gradient = pending.take_leaf(edge.leaf)
                if gradient is not None:
                    leaf_ready(edge.leaf, _call_hooks(edge.leaf.grad_meta.hooks.values(), gradient))


def _nodes_before(targets: Collection[Target], roots: Iterable[TensorBase]) -> set[GradientNode]:
    """The nodes that must compute their inputs' gradients for one of the targets to get its own."""
    reachable: dict[int, GradientNode] = {}
    stack = [tape.edge_of(root) for root in roots]
    while stack:
        edge = stack.pop()
        if edge is not None and edge.node is not None and edge.node.number not in reachable:
            reachable[edge.node.number] = edge.node
            stack += edge.node.edges
    needed: set[GradientNode] = set()
    for _, node in sorted(reachable.items()):
        edges = [edge for edge in node.edges if edge is not None]
        if any(_target(edge) in targets or edge.node in needed for edge in edges):
            needed.add(node)
    return needed


def _input_gradients(node: GradientNode, grads: list[Gradient], create_graph: bool) -> Sequence[Gradient]:
    """The gradients of a node's inputs; where anomalies are to be detected, without any."""
    try:
        gradients = node.apply(grads, connected=create_graph)
    except Exception as error:
        if node.trace and hasattr(error, "add_note"):  # Python 3.11
            error.add_note(_origin(node))
        raise
    if tape.state.detect_anomaly:
        for edge, gradient in zip(node.edges, gradients, strict=True):
            if edge is None or gradient is None:
                continue
            if not np.isfinite(all_samples(gradient).on_host()).all():
                raise GradientError(f"[{node.name}] its gradient has nan or inf.{_origin(node)}")
    return gradients


def _origin(node: GradientNode) -> str:
    return f"\n[{node.name}] was called here:\n{node.trace}"


def _call_hooks(hooks: Iterable[Hook], gradient: TensorBase) -> TensorBase:
    """The gradient, or what the last hook that returned something returned."""
    for hook in tuple(hooks):
        changed = hook(gradient)
        if changed is not None:
            gradient = changed
    return gradient


def _retain(node: GradientNode, output: int, gradient: TensorBase) -> None:
    """Add the gradient of an output to its ``grad`` if ``retain_grad`` asked for that."""
    tensor = node.retained[output]() if output in node.retained else None
    if tensor is not None:
        meta = tensor.grad_meta
        with _lock_of(tensor):
            meta.grad = gradient if meta.grad is None else add(meta.grad, gradient)


def _accumulate(leaf: TensorBase, gradient: TensorBase, used_storages: set[int]) -> None:
    """Add to a leaf's ``grad``, which shares memory with nothing else: the user may change it in place."""
    meta = leaf.grad_meta
    if not meta.requires_grad:  # since the forward pass
        return
    if listeners.active:
        listeners.leaf_gradient(leaf)
    if isinstance(gradient, BatchedTensorBase) and not isinstance(leaf, BatchedTensorBase):
        gradient = gradient.sum_over_samples()
    with _lock_of(leaf):
        if meta.grad is not None:
            meta.grad = add(meta.grad, gradient)
            return
        has_history, storage = gradient.grad_meta is not None, id(gradient.storage)
        shared = storage in used_storages or not gradient.is_contiguous()
        used_storages.add(storage)
        meta.grad = clone(gradient) if shared and not has_history else gradient
