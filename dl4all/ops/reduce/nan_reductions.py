"""nansum and nanmean: reductions that ignore nan."""

from __future__ import annotations

from typing import Any

from dl4all.ops.core.dtypes import checked_dtype, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Dims, DTypeLike
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.elementwise.comparison import isnan
from dl4all.ops.elementwise.logic import logical_not, where
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand
from dl4all.ops.reduce.reduction_kernel import axes_of
from dl4all.ops.reduce.repetition import once, repetition
from dl4all.ops.reduce.sums import mean, sum


@export("dl", "Tensor", out=True)
def nansum(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """The sum of the elements along axes that are not nan.

    Example:
        >>> import dl4all as dl
        >>> dl.nansum(dl.tensor([1.0, float("nan"), 3.0])).item()
        4.0
    """
    found = repetition(input, axes_of("nansum", dim, len(input.shape)))
    if found is None:
        return sum(_nan_to_zero(input), dim, keepdim, dtype=dtype)
    zeros_for_nan = _nan_to_zero(found.elements)
    return sum(expand(zeros_for_nan, *input.shape), dim, keepdim, dtype=dtype)


@export("dl", "Tensor", out=True)
def nanmean(input: Array, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Array:
    """The mean of the elements along axes that are not nan; nan where there are none.

    Raises:
        DTypeError: the input is not of floats, and `dtype` is not given.

    Example:
        >>> import dl4all as dl
        >>> dl.nanmean(dl.tensor([1.0, float("nan"), 3.0])).item()
        2.0
    """
    if kind_of(input.dtype) != "f":
        return mean(input, dim, keepdim, dtype=dtype)
    input = once(input, dim)
    x = input if dtype is None else cast(input, checked_dtype("nanmean", dtype).name)
    count = sum(cast(logical_not(isnan(x)), x.dtype.name), dim, keepdim)
    return true_divide(sum(_nan_to_zero(x), dim, keepdim), count)


def _nan_to_zero(input: Any) -> Any:
    """The input with 0 in place of nan."""
    return where(isnan(input), 0.0, input) if kind_of(input.dtype) == "f" else input
