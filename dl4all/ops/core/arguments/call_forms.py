"""Forms of calls that some ops take beside their own: PyTorch's.

An op names its forms where it is declared, and calls of ops without any pay nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import TensorBase

Form: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], Any]]
"""``form(op, args, kwargs)`` returns the arguments that go on to the op, and the result of a call in this
form, else None. It takes what is its own from `kwargs`."""

INPLACE = "inplace"
"""The last positional parameter of ops that PyTorch lets write into their first operand."""


def in_place(position: int) -> Form:
    """Calls with :data:`INPLACE`, at this position."""

    def form(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        inplace = kwargs.pop(INPLACE, False)
        if len(args) == position + 1:
            inplace, args = args[-1], args[:-1]
        return args, primitives.apply_in_place(op, *op.bind(args, kwargs)) if inplace else None

    return form


def out(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
    """Calls with `out`: tensors for the results."""
    given = kwargs.pop("out", None) if kwargs else None
    return args, None if given is None else primitives.write_results(op.name, op, args, kwargs, given)


def sample(axes: int) -> Form:
    """Calls with a single sample, a first operand with `axes` axes: a batch of one."""

    def form(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        first = args[0] if args else kwargs.get(op.arrays[0])
        if not isinstance(first, TensorBase) or len(first.shape) != axes:
            return args, None
        operands, arguments = op.bind(args, kwargs)
        batch = primitives.reshape(first, (1, *first.shape))
        result = op(batch, *operands[1:], **arguments)
        return args, primitives.reshape(result, result.shape[1:])

    return form


def alone(function: Callable[[Any], Any]) -> Form:
    """Calls with the first operand alone, where the op needs more: another function answers them."""

    def form(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        return args, function(args[0]) if len(args) == 1 and not kwargs else None

    return form
