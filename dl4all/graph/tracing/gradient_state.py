"""The autograd state of tensors, their gradients and histories, before a call; and the changes by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dl4all.errors import GradientError
from dl4all.ops.core import tape
from dl4all.ops.core.tape import GradientNode
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.listeners.capture import Capture


class GradientState:
    """Gradients and histories of tensors as they are now.

    Args:
        tensors: those that a call can see.
    """

    def __init__(self, tensors: Iterable[Any]) -> None:
        self._before = [(tensor, _node(tensor), gradient(tensor)) for tensor in tensors]

    @property
    def have_gradients(self) -> tuple[bool, ...]:
        """Which of the tensors had a gradient."""
        return tuple(grad is not None for _, _, grad in self._before)

    def gradients(self) -> list[tuple[Any, Any]]:
        """The tensors that had a gradient, each with it."""
        return [(tensor, grad) for tensor, _, grad in self._before if grad is not None]

    def new_gradients(self) -> list[tuple[Any, Any]]:
        """The tensors whose gradient is another one by now, or none, each with it."""
        return [
            (tensor, gradient(tensor)) for tensor, _, grad in self._before if gradient(tensor) is not grad
        ]

    def has_new_history(self) -> bool:
        """Whether a tensor was changed in place by what gradients flow through."""
        return any(_node(tensor) is not node for tensor, node, _ in self._before)


def gradient(tensor: Any) -> Any:
    """A tensor's gradient, None if it has none."""
    return None if tensor.grad_meta is None else tensor.grad_meta.grad


def _node(tensor: Any) -> GradientNode | None:
    return None if tensor.grad_meta is None else tensor.grad_meta.node


class HistoryWatch:
    """Notes backward passes that leave a captured call (:class:`dl4all.ops.core.tape.Observer`).

    ``first`` is the number of the first node that the call makes.
    """

    def __init__(self, active: Capture) -> None:
        self.first = tape.next_number()
        self.refuses_hooks = False
        self._active = active

    def made(self, node: GradientNode, inputs: Sequence[Any], outputs: Sequence[TensorBase]) -> None:
        """An op has run and left a node."""

    def entered(self, node: GradientNode) -> None:
        """The backward pass has come to a node.

        Raises:
            GradientError: what is captured would be seen from outside, and ``refuses_hooks``.
        """
        if node.number < self.first:
            self._active.refused("takes gradients through what was computed before the call")
        if self.refuses_hooks and (any(node.hooks.values()) or node.retained):
            raise GradientError(f"[{node.name}] its result has hooks or keeps its gradient")
