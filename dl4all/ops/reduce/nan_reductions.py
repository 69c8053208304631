"""Reductions in pairs, and those that leave out nan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.elementwise.comparison import isnan
from dl4all.ops.elementwise.logic import logical_not, where
from dl4all.ops.memory.conversion import cast
from dl4all.ops.reduce.extrema import amax, amin
from dl4all.ops.reduce.sums import mean, sum
from dl4all.ops.reduce.variance import std, var


class Range(NamedTuple):
    """The smallest and the largest elements."""

    min: Any
    max: Any


@export("dl", "Tensor")
def aminmax(input: Any, *, dim: int | None = None, keepdim: bool = False) -> Range:
    """The smallest and the largest element, along axis `dim` if it is given.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: it has no elements.

    Example:
        >>> import dl4all as dl
        >>> found = dl.aminmax(dl.tensor([1.0, 3.0, 2.0]))
        >>> found.min.item(), found.max.item()
        (1.0, 3.0)
    """
    return Range(amin(input, dim, keepdim), amax(input, dim, keepdim))


@export("dl")
def var_mean(input: Any, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Any, Any]:
    """The variance of the elements along axes, and their mean; arguments as for :func:`var`.

    Example:
        >>> import dl4all as dl
        >>> variance, mean = dl.var_mean(dl.tensor([1.0, 2.0, 3.0]))
        >>> variance.item(), mean.item()
        (1.0, 2.0)
    """
    return var(input, dim, correction=correction, keepdim=keepdim), mean(input, dim, keepdim)


@export("dl")
def std_mean(input: Any, dim: Any = None, *, correction: float = 1, keepdim: bool = False) -> tuple[Any, Any]:
    """The standard deviation of the elements along axes, and their mean; arguments as for :func:`std`.

    Example:
        >>> import dl4all as dl
        >>> deviation, mean = dl.std_mean(dl.tensor([1.0, 2.0, 3.0]))
        >>> deviation.item(), mean.item()
        (1.0, 2.0)
    """
    return std(input, dim, correction=correction, keepdim=keepdim), mean(input, dim, keepdim)


@export("dl", "Tensor")
def nansum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of the elements along axes that are not nan.

    Example:
        >>> import dl4all as dl
        >>> dl.nansum(dl.tensor([1.0, float("nan"), 3.0])).item()
        4.0
    """
    return sum(_known(input), dim, keepdim, dtype=dtype)


@export("dl", "Tensor")
def nanmean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The mean of the elements along axes that are not nan; nan where there are none.

    Raises:
        DTypeError: the input is not of floats, and no dtype is given.

    Example:
        >>> import dl4all as dl
        >>> dl.nanmean(dl.tensor([1.0, float("nan"), 3.0])).item()
        2.0
    """
    if input.dtype.kind != "f":
        return mean(input, dim, keepdim, dtype=dtype)
    x = input if dtype is None else cast(input, np.dtype(dtype).name)
    count = sum(cast(logical_not(isnan(x)), x.dtype.name), dim, keepdim)
    return true_divide(sum(_known(x), dim, keepdim), count)


def _known(input: Any) -> Any:
    """With 0 in the place of nan."""
    return where(isnan(input), 0.0, input) if input.dtype.kind == "f" else input
