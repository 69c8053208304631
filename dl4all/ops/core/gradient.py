"""The gradient in an op's declaration: functions of the result's gradient and of what they name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dl4all.errors import GradientError

Function = Callable[..., Any]
Grad = Function | tuple[Function | None, ...] | None


class GradientRule:
    """How an op's operands get their gradients.

    A tuple has a function for each operand, None where there is no gradient; a single function is for
    the only operand, or returns a tuple with all of them. A function's first parameter is the gradient
    of the result. The others are taken by their names: operands and ``result`` (which are then kept in
    memory for it), arguments, ``shapes`` (the operands'), and ``needs`` (whose gradients are wanted).
    They are written in the library's own ops, so that they can be differentiated again; gradients of
    what was broadcast are summed, and brought to the operand's dtype, afterwards.

    >>> product = GradientRule("mul", (lambda g, b: g * b, lambda g, a: g * a))
    >>> product.parameters((True, False))
    {'b'}
    """

    def __init__(self, name: str, grad: Grad) -> None:
        self._name = name
        self._grad = grad
        functions = grad if isinstance(grad, tuple) else (grad,)
        self._names = tuple(frozenset() if f is None else _names(f) for f in functions)

    def parameters(self, needs: tuple[bool, ...]) -> set[str]:
        """What must be at hand when the gradients that are wanted are computed."""
        if not isinstance(self._grad, tuple):
            return set(self._names[0])
        return {name for names, needed in zip(self._names, needs, strict=True) if needed for name in names}

    def __call__(self, g: Any, values: dict[str, Any], needs: tuple[bool, ...]) -> tuple[Any, ...]:
        """The gradients, None for those that are not needed.

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
        found = self._grad(g, **{name: values[name] for name in self._names[0]})
        return found if isinstance(found, tuple) else (found,)


def _names(function: Function) -> frozenset[str]:
    return frozenset(list(inspect.signature(function).parameters)[1:])
