"""The node of an op's call in the graph that backward follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all.ops.core import tape
from dl4all.ops.core.primitives import primitives


class OpNode(tape.GradientNode):
    """A call of an op, whose gradients a :class:`GradientPlan` computes."""

    __slots__ = ()

    def compute_gradients(
        self, backward: Callable[..., Any], grads: Sequence[Any], saved: list[Any]
    ) -> Sequence[Any]:
        return fit_gradients(backward(grads[0], saved), self.edges)


def fit_gradients(gradients: Sequence[Any], edges: Sequence[tape.Edge | None]) -> list[Any]:
    """Sum gradients over the axes along which their operands were broadcast, and cast them to their dtypes.

    Args:
        gradients: of all operands, None for zeros.
        edges: where they go, None for an operand that wants no gradient.
    """
    fitting: list[Any] = []
    for gradient, edge in zip(gradients, edges, strict=True):
        if edge is None:
            gradient = None
        elif gradient is not None:
            if gradient.shape != edge.shape:
                gradient = primitives.sum_to(gradient, edge.shape)
            if gradient.dtype != edge.dtype:
                gradient = primitives.cast(gradient, edge.dtype.name)
        fitting.append(gradient)
    return fitting
