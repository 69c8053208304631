"""What was done to tensors that need gradients: one node for each op, with edges to where its gradients go.

Nodes are made while ops run and read by :mod:`dl4all.autograd`. They hold no reference to their own result,
so that a graph has no cycles and is freed as soon as the last tensor of it is: what a gradient needs of the
result is kept as another tensor on the same memory.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dl4all.errors import GradientError
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase, active_levels

Gradient = TensorBase | None
Backward = Callable[..., Any]
"""``backward(grads, saved, needs)``: from the gradients of a node's outputs, those of its inputs.

`grads` has one entry for each output, None where nothing came back. `saved` are the tensors that the node
was given to keep, `needs` says which inputs' gradients are wanted. Returned is one gradient, or None,
for each input.
"""
Hook = Callable[[Any], Any]


class _State(threading.local):
    """Each thread's own."""

    enabled = True  # gradients are wanted
    anomalies = False  # nodes note where they were made
    in_vmap = False  # a function runs for all samples of a vmap at once
    # Asked for each tensor that is to be kept; may return a function that makes it again instead.
    forget: Callable[[TensorBase], Callable[[], TensorBase] | None] | None = None


state = _State()
_numbers = itertools.count()


class Edge(NamedTuple):
    """Where a gradient goes: to an output of a node, or to a leaf, a tensor that the user made."""

    node: Node | None
    output: int
    leaf: TensorBase | None


class GradMeta:
    """What a tensor that takes part in differentiation has beside its elements."""

    __slots__ = ("grad", "hooks", "node", "output", "requires_grad")

    def __init__(self, node: Node | None = None, output: int = 0) -> None:
        self.node = node  # that made it; None for a leaf
        self.output = output
        self.requires_grad = node is not None  # gradients
        self.grad: TensorBase | None = None
        self.hooks: dict[int, Hook] = {}  # of a leaf


class _Saved(NamedTuple):
    take: TensorBase | Callable[[], TensorBase]  # detached, or what makes it again
    edge: Edge | None
    own: int | None  # it is this output of the node itself
    version: int


class Node:
    """An op that has run."""

    __slots__ = (
        "__weakref__", "_backward", "_saved", "edges", "hooks", "inputs", "name", "number", "outputs",
        "retained", "trace",
    )  # fmt: skip

    def __init__(self, name: str, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        self.name = name
        self.number = next(_numbers)  # the nodes that use its outputs have higher ones
        self.edges = tuple(map(edge_of, inputs))
        self.inputs = tuple((i.shape, i.dtype) if isinstance(i, TensorBase) else None for i in inputs)
        self.outputs = tuple((o.shape, o.dtype, o.device) for o in outputs)
        self.hooks: dict[int, dict[int, Hook]] = {}  # by output
        self.retained: dict[int, weakref.ref[TensorBase]] = {}  # outputs that keep their gradient
        self.trace = "".join(traceback.format_stack()[:-3]) if state.anomalies else ""
        self._backward: Backward | None = None
        self._saved: tuple[_Saved | None, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.name} {self.number}>"

    def keep(self, backward: Backward, saved: Sequence[TensorBase | None], outputs: Sequence[Any]) -> None:
        """Note how to compute gradients, and what that needs."""
        own = {id(output): index for index, output in enumerate(outputs)}

        def kept(tensor: TensorBase) -> _Saved:
            index = own.get(id(tensor))
            edge = edge_of(tensor) if index is None else None  # an edge to this node itself would be a cycle
            return _Saved(_kept(tensor), edge, index, tensor.storage.version)

        self._backward = backward
        self._saved = tuple(None if tensor is None else kept(tensor) for tensor in saved)

    def apply(self, grads: Sequence[Gradient], *, connected: bool) -> Sequence[Gradient]:
        """The inputs' gradients; with `connected`, as tensors that can be differentiated again.

        Raises:
            GradientError: what it kept is gone, or was changed since.
        """
        if self._backward is None:
            raise GradientError(
                f"[{self.name}] what its gradient needs was freed by an earlier backward; "
                "give that one retain_graph=True to go through the graph again"
            )
        saved = tuple(None if kept is None else self._restored(kept, connected) for kept in self._saved)
        found: Sequence[Gradient] = self._backward(grads, saved, tuple(e is not None for e in self.edges))
        return found

    def _restored(self, kept: _Saved, connected: bool) -> TensorBase:
        take, edge, own, version = kept
        tensor = take if isinstance(take, TensorBase) else take()
        if tensor is take and tensor.storage.version != version:
            raise GradientError(
                f"[{self.name}] a tensor of shape {tensor.shape} that its gradient needs was since "
                "changed in place; change a .clone() of it instead"
            )
        if not connected or (edge is None and own is None):
            return tensor
        if edge is not None and edge.leaf is not None:
            return edge.leaf
        again = alias(tensor)
        again.grad_meta = GradMeta(self, own) if own is not None else GradMeta(edge.node, edge.output)  # type: ignore[union-attr]
        return again

    def free(self) -> None:
        """Let go of what the gradient needed."""
        self._backward = None
        self._saved = ()


def alias(tensor: TensorBase) -> TensorBase:
    """The same elements in the same memory, without a history."""
    made: TensorBase = tensor.as_strided(tensor.shape, tensor.strides, tensor.offset)
    made.view_of = None  # it has a history of its own, or none
    return made


def _kept(tensor: TensorBase) -> TensorBase | Callable[[], TensorBase]:
    again = None if state.forget is None else state.forget(tensor)
    return alias(tensor) if again is None else again


def wants_gradient(operand: Any) -> bool:
    """Whether gradients flow through an operand.

    Raises:
        GradientError: it is a view of what has another history by now.
    """
    if not isinstance(operand, TensorBase):
        return False
    view_of = operand.view_of
    if view_of is not None and view_of[1] != operand.storage.history_version and state.enabled:
        raise GradientError(
            f"[view] a view of shape {operand.shape} shows memory that was since changed in place with "
            "gradients on, so that its own history is no longer true; take the view again, or work out of "
            "place"
        )
    return operand.grad_meta is not None and operand.grad_meta.requires_grad


def edge_of(operand: Any) -> Edge | None:
    """Where an operand's gradient goes; None if it needs none."""
    meta = operand.grad_meta if isinstance(operand, TensorBase) else None
    if meta is None or not meta.requires_grad:
        return None
    return Edge(meta.node, meta.output, operand if meta.node is None else None)


def add_node(
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[TensorBase],
    backward: Backward,
    saved: Sequence[TensorBase | None] = (),
    *,
    match_levels: bool = True,
) -> None:
    """Note how `outputs` came from `inputs`, if gradients are on and an input wants one.

    Args:
        name: of the op, for errors.
        inputs: operands; what is no tensor has no gradient.
        outputs: the results; those of no floating dtype take no part.
        backward: see :data:`Backward`.
        saved: inputs and outputs that `backward` wants to have.
        match_levels: within ``vmap``, give an input that all samples share the sum of their gradients.
    """
    if not state.enabled or not any(map(wants_gradient, inputs)):
        return
    if active_levels and match_levels and outputs and isinstance(outputs[0], BatchedTensorBase):
        inputs = outputs[0].match_inputs(inputs)
    node = Node(name, inputs, outputs)
    for index, output in enumerate(outputs):
        if output.dtype.kind == "f":
            output.grad_meta = GradMeta(node, index)
    node.keep(backward, saved, outputs)


@contextlib.contextmanager
def gradients(enabled: bool) -> Iterator[None]:
    """Within, ops are recorded or not, in this thread."""
    before, state.enabled = state.enabled, enabled
    try:
        yield
    finally:
        state.enabled = before


def repeated_axes(shape: Shape, wider: Shape) -> tuple[int, ...]:
    """The axes along which `shape` was repeated to become `wider`.

    >>> repeated_axes((3, 1), (2, 3, 5))
    (0, 2)
    """
    missing = len(wider) - len(shape)
    stretched = (i + missing for i, size in enumerate(shape) if size != wider[i + missing])
    return (*range(missing), *stretched)
