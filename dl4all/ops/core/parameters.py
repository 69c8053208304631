"""The parameters of an op: which are operands, which arguments, and how a call's values become those."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dl4all.ops.core.arguments.call_forms import INPLACE
from dl4all.ops.core.arguments.numpy_names import names_for, renamed

_UNSET = object()
"""Stands for a parameter without a default."""


class Parameters:
    """The parameters of an op's body, without :data:`INPLACE`.

    Attributes:
        signature: of the body.
        arrays: the operands' names, which come first: annotated ``Array``.
        arguments: the names of the others.
        defaults: of those arguments that have one.
        optional: the operands that may be left out.

    >>> def scaled(input: "Array", factor: float, *, shift: float = 0.0): ...
    >>> Parameters(scaled).bind(("x", 2.0), {})
    (['x'], {'factor': 2.0, 'shift': 0.0})
    """

    def __init__(self, body: Callable[..., Any]) -> None:
        self.signature = inspect.signature(body)
        names = list(self.signature.parameters)
        self.inplace_position = names.index(INPLACE) if INPLACE in names else None
        parameters = [p for p in self.signature.parameters.values() if p.name != INPLACE]
        self.arrays = tuple(p.name for p in parameters if "Array" in str(p.annotation))
        self.arguments = tuple(p.name for p in parameters if p.name not in self.arrays)
        given = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.defaults = {name: given[name] for name in self.arguments if name in given}
        self.optional = {name for name in self.arrays if name in given}
        self._operands = {name: given.get(name, _UNSET) for name in self.arrays}
        self._arguments = {name: given.get(name, _UNSET) for name in self.arguments}
        self._required = tuple(name for name in self.arguments if name not in given)
        self._name = body.__name__
        self._numpy_names = names_for(self.signature.parameters)
        positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self._positional = tuple(positional[len(self.arrays) :])

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Split what a call was given into operands and arguments, with defaults filled in.

        Raises:
            TypeError: a parameter is missing, unknown or given twice.
        """
        count, given = len(self.arrays), len(args)
        if given == count and not kwargs and not self._required:
            return list(args), self._arguments.copy()
        operands, arguments = list(args[:count]), self._arguments.copy()
        if given > count:
            arguments.update(zip(self._positional, args[count:]))  # noqa: B905, as defaults make up for it
        if kwargs:
            arguments.update(kwargs)
        if given < count:
            for name in self.arrays[given:]:
                operands.append(arguments.pop(name, self._operands[name]))
        if not self._each_once(given, kwargs, operands, arguments):
            if not kwargs.keys().isdisjoint(self._numpy_names):
                return self.bind(args, renamed(self._name, kwargs, self._numpy_names))
            bound = self.signature.bind(*args, **kwargs)  # says what is wrong
            bound.apply_defaults()
            operands = [bound.arguments[name] for name in self.arrays]
            arguments = {name: bound.arguments[name] for name in self.arguments}
        return operands, arguments

    def _each_once(
        self, given: int, kwargs: dict[str, Any], operands: list[Any], arguments: dict[str, Any]
    ) -> bool:
        """Whether a call gives each parameter once, `given` of them by their position, and no others."""
        count = len(self.arrays)
        if given > count + len(self._positional) or len(arguments) != len(self.arguments):
            return False
        if given > count and kwargs and not kwargs.keys().isdisjoint(self._positional[: given - count]):
            return False
        if given < count and any(operand is _UNSET for operand in operands):
            return False
        return not self._required or not any(arguments[name] is _UNSET for name in self._required)
