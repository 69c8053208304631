"""Gradients in declarations of ops: functions whose parameter names choose what is kept for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dl4all.errors import GradientError

Function = Callable[..., Any]
Grad = Function | tuple[Function | None, ...] | None


class GradientRule:
    """Computes the gradients of an op's operands.

    A tuple has a function for each operand, None for an operand without a gradient. A single function is for
    the only operand, or returns a tuple of all gradients. A function's first parameter is the gradient of the
    result. The names of the others choose what it is called with: operands and ``result`` (kept in memory
    then), arguments, ``shapes`` (of the operands), and ``needs`` (which operands want a gradient). The
    functions call the library's own ops, so that gradients can be differentiated again. Afterwards gradients
    of broadcast operands are summed, and cast to the operand's dtype.

    >>> product = GradientRule("mul", (lambda g, b: g * b, lambda g, a: g * a))
    >>> product.parameters((True, False))
    {'b'}
    """

    def __init__(self, name: str, grad: Grad) -> None:
        self._name = name
        self._grad = grad
        functions = grad if isinstance(grad, tuple) else (grad,)
        self._names = tuple(frozenset() if f is None else _parameter_names(f) for f in functions)

    def parameters(self, needs: tuple[bool, ...]) -> set[str]:
        """The names of all parameters of the functions that compute the gradients in need."""
        if not isinstance(self._grad, tuple):
            return set(self._names[0])
        return {name for names, needed in zip(self._names, needs, strict=True) if needed for name in names}

    def __call__(self, g: Any, values: dict[str, Any], needs: tuple[bool, ...]) -> tuple[Any, ...]:
        """Compute the gradients; None for those that are not needed.

        Raises:
            GradientError: the op declares none.
        """
        if self._grad is None:
            raise GradientError(f"[{self._name}] has no gradient; use .detach() where none is needed")
        if isinstance(self._grad, tuple):
            return tuple(
                f(g, **{name: values[name] for name in names}) if needed and f is not None else None
                for f, names, needed in zip(self._grad, self._names, needs, strict=True)
            )
        gradients = self._grad(g, **{name: values[name] for name in self._names[0]})
        return gradients if isinstance(gradients, tuple) else (gradients,)


def _parameter_names(function: Function) -> frozenset[str]:
    """The parameters after the first one, which is the gradient of the result."""
    return frozenset(list(inspect.signature(function).parameters)[1:])
