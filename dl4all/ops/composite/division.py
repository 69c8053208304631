"""Division with a rounding mode."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.comparison import lt, ne
from dl4all.ops.elementwise.rounding import floor_divide, trunc

ROUNDING = (None, "trunc", "floor")


@export("dl", "Tensor", "Tensor_.divide", aliases=("divide",))
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Quotient of each pair of elements, rounded if asked to.

    Args:
        input, other: tensors whose shapes broadcast; one may be a number.
        rounding_mode: None for the quotient itself, which is a float; "trunc" to round it towards 0, "floor"
            to round it down. Rounded, integers stay integers.

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> dl.div(dl.tensor([-7, 7]), 2, rounding_mode="trunc").tolist()
        [-3, 3]
    """
    if rounding_mode not in ROUNDING:
        raise ArgumentError(f"[div] rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    if rounding_mode is None:
        return true_divide(input, other)
    down = floor_divide(input, other)
    if rounding_mode == "floor":
        return down
    if down.dtype.kind == "f":
        return trunc(true_divide(input, other))
    # In integers, which floats do not hold exactly: one more where a quotient below 0 was not whole.
    inexact = ne(mul(down, other), input)
    return down + (lt(down, 0) & inexact).to(down.dtype)
