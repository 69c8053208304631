"""Gradients in declarations of ops: functions whose parameter names choose what is kept for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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

    >>> product = GradientRule("mul", ("a", "b"), (lambda g, b: g * b, lambda g, a: g * a))
    >>> product.plan((True, False)).parameters
    (('b', 1),)
    """

    def __init__(self, name: str, operands: Sequence[str], grad: Grad) -> None:
        self._name = name
        self._operands = tuple(operands)
        self._grad = grad
        self._functions = grad if isinstance(grad, tuple) else (grad,)
        self._names = tuple(() if f is None else _parameter_names(name, f) for f in self._functions)
        self._plans: dict[tuple[bool, ...], GradientPlan] = {}

    def plan(self, needs: tuple[bool, ...]) -> GradientPlan:
        """The plan of the gradients of the operands that want one."""
        plan = self._plans.get(needs)
        if plan is None:
            plan = self._plans[needs] = self._make_plan(needs)
        return plan

    def _make_plan(self, needs: tuple[bool, ...]) -> GradientPlan:
        joint = not isinstance(self._grad, tuple)
        chosen = [
            (i, f, names)
            for i, (f, names) in enumerate(zip(self._functions, self._names, strict=True))
            if f is not None and (joint or needs[i])
        ]
        taken = {name for _, _, names in chosen for name in names}
        # Operands come first, so that an operand called `result` is not taken for the result.
        operands = [(name, i) for i, name in enumerate(self._operands) if name in taken]
        parameters = (*operands, *((name, None) for name in sorted(taken.difference(self._operands))))
        places = {name: place for place, (name, _) in enumerate(parameters)}
        calls = [(i, f, tuple(places[name] for name in names)) for i, f, names in chosen]
        return GradientPlan(self._name, needs, parameters, calls, joint=joint)


class GradientPlan:
    """The gradients of those operands of an op that want one.

    Attributes:
        needs: which operands do.
        parameters: the names of what is kept for them, each with its position if it is an operand.
    """

    __slots__ = ("_calls", "_joint", "_name", "needs", "parameters")

    def __init__(
        self,
        name: str,
        needs: tuple[bool, ...],
        parameters: tuple[tuple[str, int | None], ...],
        calls: Sequence[tuple[int, Function, tuple[int, ...]]],
        *,
        joint: bool,
    ) -> None:
        """
        Args:
            name: the op's.
            needs, parameters: see above.
            calls: for each function the operand, and the places of what it takes among the parameters.
            joint: whether one function computes all gradients.
        """
        self.needs = needs
        self.parameters = parameters
        self._name = name
        self._calls = tuple(calls)
        self._joint = joint

    def __call__(self, g: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Compute the gradients, one for each operand; those of operands that want none do not count.

        Args:
            g: the gradient of the result.
            values: those of the parameters.

        Raises:
            GradientError: the op declares none.
        """
        if not self._joint:
            gradients: list[Any] = [None] * len(self.needs)
            for i, function, places in self._calls:
                gradients[i] = function(g, *[values[place] for place in places])
            return gradients
        if not self._calls:
            raise GradientError(f"[{self._name}] has no gradient; use .detach() where none is needed")
        _, function, places = self._calls[0]
        found = function(g, *[values[place] for place in places])
        return found if isinstance(found, tuple) else (found,)


def _parameter_names(name: str, function: Function) -> tuple[str, ...]:
    """The parameters after the first one, which is the gradient of the result."""
    parameters = list(inspect.signature(function).parameters.values())
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters):
        raise ValueError(f"[{name}] a gradient's parameters are names, not *, ** or keyword-only: {function}")
    return tuple(p.name for p in parameters[1:])
