"""Whether tensors are equal, exactly or within a tolerance."""

from __future__ import annotations

from dl4all.errors import ArgumentError, DTypeError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import sub
from dl4all.ops.elementwise.comparison import eq, isfinite, isnan, le
from dl4all.ops.elementwise.logic import logical_and, logical_or
from dl4all.ops.elementwise.rounding import abs


@export("dl", "Tensor")
def equal(input: Array, other: Array) -> bool:
    """Whether two tensors have the same shape and the same elements; nan equals nothing.

    Example:
        >>> import dl4all as dl
        >>> dl.equal(dl.tensor([1, 2]), dl.tensor([1, 2])), dl.equal(dl.tensor([1, 2]), dl.tensor([1]))
        (True, False)
    """
    return bool(input.shape == other.shape and eq(input, other).on_host().all())


@export("dl", "Tensor")
def isclose(
    input: Array, other: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """Whether elements differ by at most ``atol + rtol * abs(other)``.

    Args:
        input, other: tensors of the same dtype, whose shapes broadcast.
        rtol, atol: relative and absolute tolerance, at least 0. An infinity is close to itself only.
        equal_nan: whether nan is close to nan.

    Raises:
        ArgumentError: a tolerance is negative.
        DTypeError: the dtypes differ.

    Example:
        >>> import dl4all as dl
        >>> dl.isclose(dl.tensor([1.0, 2.0]), dl.tensor([1.000001, 2.1])).tolist()
        [True, False]
    """
    if input.dtype != other.dtype:
        raise DTypeError(f"[isclose] expected operands of one dtype, got {input.dtype} and {other.dtype}")
    if rtol < 0 or atol < 0:
        raise ArgumentError(f"[isclose] tolerances must be at least 0, got rtol={rtol} and atol={atol}")
    same = eq(input, other)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(input), isnan(other)))
    if kind_of(input.dtype) == "b":
        return same
    tolerance = abs(other) * rtol + atol
    return logical_or(same, logical_and(isfinite(tolerance), le(abs(sub(input, other)), tolerance)))


@export("dl", "Tensor")
def allclose(
    input: Array, other: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close, see :func:`isclose`.

    Raises:
        ArgumentError, DTypeError: as for :func:`isclose`.

    Example:
        >>> import dl4all as dl
        >>> dl.allclose(dl.tensor([1.0, 2.0]), dl.tensor([1.000001, 2.0]))
        True
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).on_host().all())
