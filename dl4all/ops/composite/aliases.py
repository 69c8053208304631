"""Second names that PyTorch has for ops, and division with a rounding mode."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.elementwise.arithmetic import div, mul, neg, sub
from dl4all.ops.elementwise.comparison import clamp, ge, gt, le, lt, ne
from dl4all.ops.elementwise.rounding import abs, floor_divide, sign, trunc
from dl4all.ops.elementwise.transcendental import acos, asin, atan, atan2
from dl4all.ops.memory.views import movedim, reshape, swapaxes

absolute = abs
arccos = acos
arcsin = asin
arctan = atan
arctan2 = atan2
clip = clamp
fix = trunc
greater = gt
greater_equal = ge
less = lt
less_equal = le
moveaxis = movedim
multiply = mul
negative = neg
not_equal = ne
sgn = sign  # they differ for complex numbers only
subtract = sub
swapdims = swapaxes
true_divide = div

ROUNDING = (None, "trunc", "floor")


def divide(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Quotient of each pair of elements, rounded if asked to; ``dl.div`` is the same.

    Args:
        input, other: tensors whose shapes broadcast; one may be a number.
        rounding_mode: None for the quotient itself, which is a float; "trunc" to round it towards 0, "floor"
            to round it down. Rounded, integers stay integers.

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> dl.divide(dl.tensor([-7, 7]), 2, rounding_mode="trunc").tolist()
        [-3, 3]
    """
    if rounding_mode not in ROUNDING:
        raise ArgumentError(f"[divide] rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    if rounding_mode is None:
        return div(input, other)
    down = floor_divide(input, other)
    if rounding_mode == "floor":
        return down
    if down.dtype.kind == "f":
        return trunc(div(input, other))
    # In integers, which floats do not hold exactly: one more where a quotient below 0 was not whole.
    inexact = ne(mul(down, other), input)
    return down + (lt(down, 0) & inexact).to(down.dtype)


def ravel(input: Any) -> Any:
    """The elements in one axis, a view where that is possible.

    Example:
        >>> import dl4all as dl
        >>> dl.ravel(dl.tensor([[1, 2], [3, 4]])).tolist()
        [1, 2, 3, 4]
    """
    return reshape(input, -1)


def positive(input: Any) -> Any:
    """The input itself.

    Raises:
        ArgumentError: it is of bools.

    Example:
        >>> import dl4all as dl
        >>> dl.positive(dl.tensor([1.0, -2.0])).tolist()
        [1.0, -2.0]
    """
    if input.dtype.kind == "b":
        raise ArgumentError("[positive] expected numbers, got bool; convert with .to('int64')")
    return input


def rsub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """``other - alpha * input``.

    Example:
        >>> import dl4all as dl
        >>> dl.rsub(dl.tensor([1.0, 2.0]), 10.0, alpha=2).tolist()
        [8.0, 6.0]
    """
    return sub(other, input, alpha=alpha)
