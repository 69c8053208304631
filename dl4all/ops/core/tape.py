"""The autograd graph: a node for each op that ran, with edges to the nodes that its gradients go to.

Ops make nodes while they run, and :mod:`dl4all.autograd` goes through them backward. A node holds no
reference to its own result, so that a graph has no cycles and is freed with its last tensor: if the gradient
needs the result, the node keeps another tensor on the same memory.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from dl4all.errors import GradientError
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase, active_levels
from dl4all.runtime.scopes import Scope

Gradient = TensorBase | None
Backward = Callable[..., Any]
"""``backward(grads, saved, needs)`` computes the gradients of a node's inputs.

`grads` has the gradient of each output, None where none arrived. `saved` are the tensors that the node keeps,
`needs` says which inputs want a gradient. It returns a gradient or None for each input.
"""
Hook = Callable[[Any], Any]


class Observer(Protocol):
    """Learns of the nodes of a thread, for those who ask which part of a network does what."""

    def made(self, node: Node, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        """An op has run and left a node."""

    def entered(self, node: Node) -> None:
        """The backward pass has come to a node."""


class _State(threading.local):
    """Settings of a thread."""

    def __init__(self) -> None:
        self.enabled = True  # ops add nodes to the graph
        self.detect_anomaly = False  # nodes keep the stack trace of the call that made them
        self.in_vmap = False  # a function runs for all samples of a vmap at once
        # For checkpoints: called with each tensor to save; may return a function that computes it again.
        self.recompute_hook: Callable[[TensorBase], Callable[[], TensorBase] | None] | None = None
        self.observer: Observer | None = None
        self.scope: Scope | None = None  # the innermost block that changes these


state = _State()
_numbers = itertools.count()


def next_number() -> int:
    """A number between those of the nodes that were made so far and those of later ones."""
    return next(_numbers)


class Edge(NamedTuple):
    """The destination of a gradient: an output of a node, or a leaf, that is a tensor which no op made."""

    node: Node | None
    output: int
    leaf: TensorBase | None


class GradMeta:
    """The part that a tensor plays in differentiation; PyTorch's ``AutogradMeta``."""

    __slots__ = ("grad", "hooks", "node", "output", "requires_grad")

    def __init__(self, node: Node | None = None, output: int = 0) -> None:
        self.node = node  # the node that made the tensor, None for a leaf
        self.output = output  # which of the node's outputs the tensor is
        self.requires_grad = node is not None
        self.grad: TensorBase | None = None
        self.hooks: dict[int, Hook] = {}  # of a leaf; a node has the hooks of its outputs


class _Saved(NamedTuple):
    """A tensor that a node keeps for its gradient."""

    tensor: TensorBase | Callable[[], TensorBase]  # without a history, or a function that computes it again
    edge: Edge | None
    own_output: int | None  # the tensor is this output of the node itself
    version: int  # of the storage at that time


class Node:
    """An op that has run."""

    __slots__ = (
        "__weakref__", "_backward", "_saved", "edges", "hooks", "inputs", "name", "number", "outputs",
        "retained", "trace",
    )  # fmt: skip

    def __init__(self, name: str, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        self.name = name
        self.number = next(_numbers)  # nodes that use its outputs have higher numbers
        self.edges = tuple(map(edge_of, inputs))
        self.inputs = tuple((i.shape, i.dtype) if isinstance(i, TensorBase) else None for i in inputs)
        self.outputs = tuple((o.shape, o.dtype, o.device) for o in outputs)
        self.hooks: dict[int, dict[int, Hook]] = {}  # of outputs, by their position
        self.retained: dict[int, weakref.ref[TensorBase]] = {}  # outputs that keep their gradient
        self.trace = "".join(traceback.format_stack()[:-3]) if state.detect_anomaly else ""
        self._backward: Backward | None = None
        self._saved: tuple[_Saved | None, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.name} {self.number}>"

    def save(self, backward: Backward, tensors: Sequence[TensorBase | None], outputs: Sequence[Any]) -> None:
        """Keep the function that computes the gradients, and the tensors that it needs."""
        positions = {id(output): position for position, output in enumerate(outputs)}

        def save_tensor(tensor: TensorBase) -> _Saved:
            own_output = positions.get(id(tensor))
            edge = edge_of(tensor) if own_output is None else None  # an edge to itself would be a cycle
            return _Saved(_detached(tensor), edge, own_output, tensor.storage.version)

        self._backward = backward
        self._saved = tuple(None if tensor is None else save_tensor(tensor) for tensor in tensors)

    def apply(self, grads: Sequence[Gradient], *, connected: bool) -> Sequence[Gradient]:
        """Compute the gradients of the inputs; with `connected` they can be differentiated again.

        Raises:
            GradientError: the saved tensors were freed, or changed in place since.
        """
        if self._backward is None:
            raise GradientError(
                f"[{self.name}] what its gradient needs was freed by an earlier backward; "
                "give that one retain_graph=True to go through the graph again"
            )
        saved = tuple(None if s is None else self._restore(s, connected) for s in self._saved)
        needs = tuple(edge is not None for edge in self.edges)
        return self._backward(grads, saved, needs)  # type: ignore[no-any-return]

    def _restore(self, saved: _Saved, connected: bool) -> TensorBase:
        """The saved tensor; with `connected` it has its place in the graph again."""
        source, edge, own_output, version = saved
        tensor = source if isinstance(source, TensorBase) else source()
        if tensor is source and tensor.storage.version != version:
            raise GradientError(
                f"[{self.name}] a tensor of shape {tensor.shape} that its gradient needs was since "
                "changed in place; change a .clone() of it instead"
            )
        if not connected or (edge is None and own_output is None):
            return tensor
        if edge is not None and edge.leaf is not None:
            return edge.leaf
        restored = alias(tensor)
        if own_output is not None:
            restored.grad_meta = GradMeta(self, own_output)
        elif edge is not None:
            restored.grad_meta = GradMeta(edge.node, edge.output)
        return restored

    @property
    def freed(self) -> bool:
        """Whether a backward pass has gone through it and dropped what it kept."""
        return self._backward is None

    def free(self) -> None:
        """Drop the saved tensors and the function that computes the gradients."""
        self._backward = None
        self._saved = ()


def alias(tensor: TensorBase) -> TensorBase:
    """Another tensor on the same elements, without a history."""
    result: TensorBase = tensor.as_strided(tensor.shape, tensor.strides, tensor.offset)
    result.view_of = None  # in-place changes of its base with gradients do not concern it
    return result


def _detached(tensor: TensorBase) -> TensorBase | Callable[[], TensorBase]:
    """The tensor without a history, or a function that computes it again."""
    recompute = None if state.recompute_hook is None else state.recompute_hook(tensor)
    return alias(tensor) if recompute is None else recompute


def wants_gradient(operand: Any) -> bool:
    """Whether an operand is a tensor that requires gradients.

    Raises:
        GradientError: it is a view of a tensor that has another history since.
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
    """The destination of an operand's gradient; None if it requires none."""
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
    """Add an op's call to the graph, if gradients are enabled and an input requires one.

    Args:
        name: the op's name, for errors.
        inputs: operands; only tensors get a gradient.
        outputs: the results; only floats take part.
        backward: see :data:`Backward`.
        saved: inputs and outputs that `backward` needs.
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
    node.save(backward, saved, outputs)
    if state.observer is not None:
        state.observer.made(node, inputs, outputs)


@contextlib.contextmanager
def changed(**settings: Any) -> Iterator[None]:
    """Within the ``with`` block, settings of this thread are others: see :mod:`dl4all.runtime.scopes`."""
    present = state.__dict__  # of this thread, and quicker than its attributes
    own = Scope(present.copy(), present["scope"])
    try:
        present["scope"] = own
        present.update(settings)
        yield
    finally:  # with one call, of C code: nothing can interrupt it
        scope: Scope | None = present["scope"]
        while scope is not None and scope is not own:
            scope = scope.outer
        if scope is own:
            present.update(own.before)


_UNCHANGED = contextlib.nullcontext()


def gradients(enabled: bool) -> contextlib.AbstractContextManager[None]:
    """Let ops of this thread add nodes to the graph in the ``with`` block, or keep them from it."""
    return _UNCHANGED if state.enabled is enabled else changed(enabled=enabled)


def repeated_axes(shape: Shape, wider: Shape) -> tuple[int, ...]:
    """The axes along which a tensor of `shape` is repeated to broadcast to the shape `wider`.

    >>> repeated_axes((3, 1), (2, 3, 5))
    (0, 2)
    """
    missing = len(wider) - len(shape)
    broadcast = (i + missing for i, size in enumerate(shape) if size != wider[i + missing])
    return (*range(missing), *broadcast)
