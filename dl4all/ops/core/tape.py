"""The autograd graph: a node for each op that ran, with edges to the nodes that its gradients go to.

Ops make nodes while they run, and :mod:`dl4all.autograd` goes through them backward. A node holds no
reference to its own result, so that a graph has no cycles and is freed with its last tensor: if the gradient
needs the result, the node keeps another tensor on the same memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dl4all.errors import GradientError
from dl4all.ops.core.dtypes import FLOATING, kind_of
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.core.vmap_hook import BatchedTensorBase, batching
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

    def made(self, node: GradientNode, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        """An op has run and left a node."""

    def entered(self, node: GradientNode) -> None:
        """The backward pass has come to a node."""


class _TapeState(threading.local):
    """Settings of a thread."""

    def __init__(self) -> None:
        self.enabled = True  # ops add nodes to the graph
        self.detect_anomaly = False  # nodes keep the stack trace of the call that made them
        self.in_vmap = False  # a function runs for all samples of a vmap at once
        # For checkpoints: called with each tensor to save; may return a function that computes it again.
        self.recompute_hook: Callable[[TensorBase], Callable[[], TensorBase] | None] | None = None
        self.recomputation = 0  # the number of the one that goes on, of this process; 0 for none
        self.observer: Observer | None = None
        # Of mixed precision (dl4all/ops/core/autocast.py): dtypes by the type of device, and what was cast.
        self.autocast: Mapping[str, np.dtype[Any]] = {}
        self.casts: dict[Any, Any] | None = None
        self.scope: Scope | None = None  # the innermost block that changes these


state = _TapeState()
_numbers = itertools.count()


def next_number() -> int:
    """A number between those of the nodes that were made so far and those of later ones."""
    return next(_numbers)


class Edge(NamedTuple):
    """The destination of a gradient: an output of a node, or a leaf, that is a tensor which no op made."""

    node: GradientNode | None
    output: int
    leaf: TensorBase | None
    shape: Shape  # of the tensor, and so of the gradient
    dtype: np.dtype[Any]

    @property
    def next_function(self) -> tuple[GradientNode | AccumulateGrad, int]:
        """The node, or what collects the leaf's gradient, and the output that the gradient is of."""
        return (AccumulateGrad(self.leaf) if self.node is None else self.node), self.output


@dataclasses.dataclass(frozen=True, eq=False)
class AccumulateGrad:
    """The end of a path through the graph: a leaf whose ``grad`` the gradient is added to.

    Two of the same leaf are equal, so that a walk through the graph meets it once.
    """

    variable: Any
    """The leaf."""
    name = "AccumulateGrad"
    next_functions = ()
    """There are none after it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and self.variable is other.variable

    def __hash__(self) -> int:
        return hash((AccumulateGrad, id(self.variable)))

    def __repr__(self) -> str:
        return f"<AccumulateGrad of shape {self.variable.shape}>"


class GradMeta:
    """The part that a tensor plays in differentiation; PyTorch's ``AutogradMeta``."""

    __slots__ = ("grad", "hooks", "node", "output", "requires_grad")

    def __init__(self, node: GradientNode | None = None, output: int = 0) -> None:
        self.node = node  # the node that made the tensor, None for a leaf
        self.output = output  # which of the node's outputs the tensor is
        self.requires_grad = node is not None
        self.grad: TensorBase | None = None
        self.hooks: dict[int, Hook] = {}  # of a leaf; a node has the hooks of its outputs


class Saved(NamedTuple):
    """A tensor that a node keeps for its gradient."""

    tensor: TensorBase | Callable[[], TensorBase]  # without a history, or a function that computes it again
    edge: Edge | None
    own_output: int | None  # the tensor is this output of the node itself; an edge to it would be a cycle
    version: int  # of the storage at that time


class GradientNode:
    """An op that has run.

    Args:
        name: the op's.
        edges: where the gradient of each input goes, None for an input that wants none.
        outputs: how many there are.
        backward: computes the gradients, as :meth:`compute_gradients` calls it.
        saved: what it needs. In place of a :class:`Saved` it gets the tensor.
        single_use: whether `backward` itself holds memory, so that :meth:`free` drops it.
    """

    __slots__ = (
        "__weakref__", "_backward", "_saved", "_single_use", "edges", "freed", "hooks", "name", "number",
        "outputs", "retained", "trace",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        edges: Sequence[Edge | None],
        outputs: int,
        backward: Callable[..., Any],
        saved: Sequence[Any],
        single_use: bool = False,
    ) -> None:
        self.name = name
        self.number = next(_numbers)  # nodes that use its outputs have higher numbers
        self.edges = edges
        self.outputs = outputs
        self.hooks: dict[int, dict[int, Hook]] = {}  # of outputs, by their position
        self.retained: dict[int, weakref.ref[TensorBase]] = {}  # outputs that keep their gradient
        self.trace = "".join(traceback.format_stack()[:-2]) if state.detect_anomaly else ""
        self._backward: Callable[..., Any] | None = backward
        self._saved = saved
        self._single_use = single_use
        self.freed = False  # whether a backward pass has gone through it that does not keep the graph

    def __repr__(self) -> str:
        return f"<{self.name} {self.number}>"

    @property
    def next_functions(self) -> tuple[tuple[GradientNode | AccumulateGrad | None, int], ...]:
        """The target of the gradient of each input: the node that made it, or :class:`AccumulateGrad` for a
        leaf, and which of the node's outputs it is; ``(None, 0)`` for an input that wants no gradient.

        >>> import dl4all as dl
        >>> x = dl.tensor([2.0, 3.0], requires_grad=True)
        >>> ((multiplied, _), *_) = (x * x).sum().grad_fn.next_functions
        >>> multiplied.name, multiplied.next_functions[0][0].variable is x
        ('mul', True)
        """
        return tuple((None, 0) if edge is None else edge.next_function for edge in self.edges)

    def apply(self, grads: Sequence[Gradient], *, connected: bool) -> Sequence[Gradient]:
        """Compute the gradients of the inputs; with `connected` they can be differentiated again.

        Raises:
            GradientError: the saved tensors were freed, or changed in place since, or a gradient does not
                fit its input.
        """
        if self._backward is None:
            raise GradientError(
                f"[{self.name}] what its gradient needs was freed by an earlier backward; "
                "give that one retain_graph=True to go through the graph again"
            )
        saved = [self._restore(s, connected) if type(s) is Saved else s for s in self._saved]
        return self.compute_gradients(self._backward, grads, saved)

    def compute_gradients(
        self, backward: Callable[..., Any], grads: Sequence[Gradient], saved: list[Any]
    ) -> Sequence[Gradient]:
        """Call the function that computes the gradients, here a :data:`Backward`, and check what it returns.

        Raises:
            GradientError: a gradient does not fit its input.
        """
        needs = tuple([edge is not None for edge in self.edges])
        gradients: Sequence[Gradient] = backward(grads, tuple(saved), needs)
        return [self._fitting(e, g) for e, g in zip(self.edges, gradients, strict=True)]

    def _fitting(self, edge: Edge | None, gradient: Gradient) -> Gradient:
        """The gradient of an input in its dtype."""
        if edge is None or gradient is None:
            return None
        if gradient.dtype != edge.dtype and {gradient.dtype, edge.dtype} <= FLOATING:
            gradient = primitives.cast(gradient, edge.dtype.name)
        if gradient.shape != edge.shape or gradient.dtype != edge.dtype:
            raise GradientError(
                f"[{self.name}] the gradient of an input of shape {edge.shape} and dtype {edge.dtype} "
                f"has shape {gradient.shape} and dtype {gradient.dtype}"
            )
        return gradient

    def _restore(self, saved: Saved, connected: bool) -> TensorBase:
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

    def free(self) -> None:
        """Drop the saved tensors, and with them the function that computes the gradients.

        A node that keeps none, such as that of a view, can be gone through again, as in PyTorch.
        """
        self.freed = True
        if not self._single_use:
            for saved in self._saved:
                if type(saved) is Saved:
                    break
            else:
                return
        self._backward = None
        self._saved = ()


def alias(tensor: TensorBase) -> TensorBase:
    """Another tensor on the same elements, without a history."""
    # No view: in-place changes of its base with gradients do not concern it.
    if batching and isinstance(tensor, BatchedTensorBase):
        result: TensorBase = tensor.strided_view(tensor.shape, tensor.strides, tensor.offset)
        result.view_of = None
        return result
    result = object.__new__(type(tensor).result_class)
    result.storage, result.dtype, result.device = tensor.storage, tensor.dtype, tensor.device
    result.shape, result.strides, result.offset = tensor.shape, tensor.strides, tensor.offset
    result.grad_meta = result.view_of = None
    return result


def save(tensor: TensorBase, edge: Edge | None, own_output: int | None = None) -> Saved:
    """The tensor as a node keeps it: without its history, or as a function that computes it again."""
    recompute = None if state.recompute_hook is None else state.recompute_hook(tensor)
    kept = alias(tensor) if recompute is None else recompute
    return Saved(kept, edge, own_output, tensor.storage.version)


def wants_gradient(operand: Any) -> bool:
    """Whether an operand is a tensor that requires gradients.

    Raises:
        GradientError: it is a view of a tensor that has another history since.
    """
    if not isinstance(operand, TensorBase):
        return False
    view_of = operand.view_of
    if view_of is not None and view_of[1] != operand.storage.history_version and state.enabled:
        raise _outdated(operand)
    return operand.grad_meta is not None and operand.grad_meta.requires_grad


def _outdated(view: TensorBase) -> GradientError:
    return GradientError(
        f"[view] a view of shape {view.shape} shows memory that was since changed in place with "
        "gradients on, so that its own history is no longer true; take the view again, or work out of "
        "place"
    )


def edge_of(operand: Any) -> Edge | None:
    """The destination of an operand's gradient; None if it requires none."""
    meta = operand.grad_meta if isinstance(operand, TensorBase) else None
    if meta is None or not meta.requires_grad:
        return None
    node = meta.node
    return Edge(node, meta.output, operand if node is None else None, operand.shape, operand.dtype)


def edges_of(operands: Sequence[Any]) -> list[Edge | None] | None:
    """The destinations of all operands' gradients; None if none requires one.

    Raises:
        GradientError: see :func:`wants_gradient`.
    """
    found = False
    edges: list[Edge | None] = []
    for operand in operands:
        edge = None
        if isinstance(operand, TensorBase):
            view_of = operand.view_of
            if view_of is not None and view_of[1] != operand.storage.history_version:
                raise _outdated(operand)
            meta = operand.grad_meta
            if meta is not None and meta.requires_grad:  # as edge_of, without a call for each operand
                node, found = meta.node, True
                leaf = operand if node is None else None
                edge = Edge(node, meta.output, leaf, operand.shape, operand.dtype)
        edges.append(edge)
    return edges if found else None


def add_node(
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[TensorBase],
    backward: Backward,
    saved: Sequence[TensorBase | None] = (),
    *,
    match_levels: bool = True,
    single_use: bool = False,
) -> None:
    """Add an op's call to the graph, if gradients are enabled and an input requires one.

    Args:
        name: the op's name, for errors.
        inputs: operands; only tensors get a gradient.
        outputs: the results; only floats take part.
        backward: see :data:`Backward`.
        saved: inputs and outputs that `backward` needs.
        match_levels: within ``vmap``, give an input that all samples share the sum of their gradients.
        single_use: `backward` itself holds memory, such as indices, which goes with the saved tensors.
    """
    if not state.enabled:
        return
    edges = edges_of(inputs)
    if edges is None:
        return
    if batching and match_levels and outputs:
        edges = matched_edges(inputs, outputs[0], edges)
    kept: list[Saved | None] = []
    if saved:
        positions = {id(output): position for position, output in enumerate(outputs)}
        for tensor in saved:
            own = positions.get(id(tensor))
            kept.append(
                None if tensor is None else save(tensor, edge_of(tensor) if own is None else None, own)
            )
    node = GradientNode(name, edges, len(outputs), backward, kept, single_use)
    for index, output in enumerate(outputs):
        if kind_of(output.dtype) == "f":
            output.grad_meta = GradMeta(node, index)
    if state.observer is not None:
        state.observer.made(node, inputs, outputs)


def matched_edges(inputs: Sequence[Any], output: TensorBase, edges: list[Edge | None]) -> list[Edge | None]:
    """Within ``vmap``, the edges by which an input that all samples share gets the sum of their gradients."""
    if not isinstance(output, BatchedTensorBase):
        return edges
    return list(map(edge_of, output.match_inputs(inputs)))


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
