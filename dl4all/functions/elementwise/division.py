"""Division with a rounding mode."""

from __future__ import annotations

from typing import Literal, TypeAlias

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar
from dl4all.ops.elementwise.arithmetic import mul, true_divide
from dl4all.ops.elementwise.comparison import lt, ne
from dl4all.ops.elementwise.rounding import floor_divide, trunc

RoundingMode: TypeAlias = Literal["trunc", "floor"] | None
ROUNDING_MODES = (None, "trunc", "floor")


@export("dl", "Tensor", aliases=("divide",), out=True)
def div(input: Array | Scalar, other: Array | Scalar, *, rounding_mode: RoundingMode = None) -> Array:
    """The quotient of each pair of elements, rounded with a `rounding_mode`.

    Args:
        input, other: tensors whose shapes broadcast; one may be a number.
        rounding_mode: None for the quotient as a float, "trunc" to round towards 0, "floor" to round down.
            Rounded quotients of integers are integers, 0 where the divisor is 0.

    Raises:
        ArgumentError: there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> dl.div(dl.tensor([-7, 7]), 2, rounding_mode="trunc").tolist()
        [-3, 3]
    """
    if rounding_mode not in ROUNDING_MODES:
        raise ArgumentError(f"[div] rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    if rounding_mode is None:
        return true_divide(input, other)
    floor = floor_divide(input, other)
    if rounding_mode == "floor":
        return floor
    if kind_of(floor.dtype) == "f":
        return trunc(true_divide(input, other))
    # Large integers are not exact as floats: add 1 to the floor of each negative quotient with a remainder.
    inexact = ne(mul(floor, other), input)
    return floor + (lt(floor, 0) & inexact).to(floor.dtype)
