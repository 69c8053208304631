"""``backward`` and ``grad``, the entry points of differentiation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dl4all.autograd.engine import backpropagate
from dl4all.errors import ArgumentError, GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase, from_host, host_array
from dl4all.ops.memory.copy import fill_with
from dl4all.ops.memory.views import expand
from dl4all.scheduler import listeners


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add gradients of the tensors to the ``grad`` of every leaf that they depend on.

    Several threads may do so for graphs with common leaves: each sum is whole, in whatever order.

    Args:
        tensors: one or several.
        grad_tensors: a weight for each element of each tensor; None means 1 for a tensor of one element.
        retain_graph: keep the saved tensors for another backward; by default with `create_graph` only.
        create_graph: let the gradients be differentiated too.

    Raises:
        GradientError: see :meth:`dl4all.Tensor.backward`.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([2.0, 3.0], requires_grad=True)
        >>> dl.autograd.backward((x * x).sum())
        >>> x.grad.tolist()
        [4.0, 6.0]
    """
    roots = _as_list(tensors)
    backpropagate(
        roots,
        _seeds("backward", roots, grad_tensors),
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
    )


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of `outputs` with respect to `inputs`, returned instead of added to ``grad``.

    Args:
        outputs, inputs: a tensor or several.
        grad_outputs: as in :func:`backward`.
        retain_graph, create_graph: as in :func:`backward`.
        only_inputs: accepted; only the inputs' gradients are computed.
        allow_unused: None for an input that no output depends on, instead of an error.
        is_grads_batched: not there: see :func:`dl4all.vmap` and :func:`dl4all.func.jacrev`.
        materialize_grads: zeros for an input that no output depends on.

    Returns:
        One gradient for each input.

    Raises:
        ArgumentError: `is_grads_batched` is set, or `materialize_grads` without `allow_unused`.
        GradientError: no output depends on an input, or an output requires no gradients.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([3.0], device="cpu").requires_grad_()
        >>> (first,) = dl.autograd.grad(x * x * x, x, create_graph=True)
        >>> first.tolist(), dl.autograd.grad(first, x)[0].tolist()
        ([27.0], [18.0])
    """
    if is_grads_batched:
        raise ArgumentError(
            "[grad] takes no batches of gradients; use dl.vmap over a call, or dl.func.jacrev"
        )
    if materialize_grads and allow_unused is False:
        raise ArgumentError(
            "[grad] materialize_grads gives zeros to unused inputs, which allow_unused=False forbids"
        )
    roots, targets = _as_list(outputs), _as_list(inputs)
    gradients = backpropagate(
        roots,
        _seeds("grad", roots, grad_outputs),
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        targets=targets,
    )
    unused = [i for i, gradient in enumerate(gradients) if gradient is None]
    if materialize_grads:
        for i in unused:
            zeros = np.zeros(targets[i].shape, targets[i].dtype)
            gradients[i] = from_host(type(targets[i]).result_class, zeros, targets[i].device, copy=False)
    elif unused and not allow_unused:
        raise GradientError(
            f"[grad] no output depends on input {unused[0]}; pass allow_unused=True to get None for it"
        )
    return tuple(gradients)


def reset_gradients(leaves: Iterable[Any], set_to_none: bool) -> None:
    """Delete the gradients of tensors, or fill them with zeros."""
    for leaf in leaves:
        if leaf.grad is None:
            continue
        if set_to_none:
            leaf.grad = None
            continue
        leaf.grad = leaf.grad.detach()
        fill_with(leaf.grad, 0)
        leaf.grad.storage.version += 1


def _as_list(tensors: Any) -> list[TensorBase]:
    return [tensors] if isinstance(tensors, TensorBase) else list(tensors)


def _seeds(name: str, roots: Sequence[TensorBase], grad_tensors: Any) -> list[TensorBase]:
    """The gradient that each root starts with."""
    weights = [None] * len(roots) if grad_tensors is None else _as_list(grad_tensors)
    if len(weights) != len(roots):
        raise GradientError(
            f"[{name}] expected a gradient for each of {len(roots)} tensors, got {len(weights)}"
        )
    return [_seed(name, root, weight) for root, weight in zip(roots, weights, strict=True)]


def _seed(name: str, root: TensorBase, weight: TensorBase | None) -> TensorBase:
    if not tape.wants_gradient(root):
        raise GradientError(
            f"[{name}] the tensor does not require gradients: nothing that it came from does, "
            "or it was made within no_grad"
        )
    if weight is None:
        if root.numel() != 1:
            raise GradientError(
                f"[{name}] a tensor of shape {root.shape} needs a gradient for each element; "
                "sum it, or pass them"
            )
        one: TensorBase
        if root.device.is_host and listeners.captured():  # a graph keeps the number
            one = from_host(type(root).result_class, np.ones((), root.dtype), root.device, copy=False)
        else:  # nothing is uploaded
            one = empty(type(root).result_class, (), root.dtype, root.device, "backward")
            if root.device.is_host:
                host_array(one)[...] = 1
            else:
                fill_with(one, 1)
        return one if not root.shape else expand(one, root.shape)
    if (weight.shape, weight.dtype, weight.device) != (root.shape, root.dtype, root.device):
        raise GradientError(
            f"[{name}] expected a gradient of shape {root.shape}, {root.dtype} on {root.device}, "
            f"got {weight.shape}, {weight.dtype} on {weight.device}"
        )
    return weight
