"""Variance and standard deviation with all forms of PyTorch's arguments, alone and with the mean."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Dims
from dl4all.ops.reduce import variance
from dl4all.ops.reduce.sums import mean


@export("dl", "Tensor", out=True)
def var(
    input: Array,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Array:
    """The variance of the elements along axes.

    Args:
        input: floats of any shape.
        dim: an axis or several; all by default. A bool in its place is `unbiased`.
        unbiased: whether `correction` is 1 or 0, by PyTorch's older name of it.
        keepdim: whether the axes stay, with size 1.
        correction: subtracted from the number of elements in the divisor: 1 for a sample (Bessel's
            correction), the default; 0 for a whole population.

    Returns:
        The input's shape without the axes; nan where there are too few elements.

    Raises:
        ArgumentError: there is no such axis, it is named twice, or both `unbiased` and `correction` are
            given.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.var(dl.tensor([1.0, 2.0, 3.0])).item()
        1.0
    """
    dim, correction = _arguments("var", dim, unbiased, correction)
    return variance.var(input, dim, correction=correction, keepdim=keepdim)


@export("dl", "Tensor", out=True)
def std(
    input: Array,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Array:
    """The standard deviation of the elements along axes: the square root of :func:`var`.

    Args:
        input: floats of any shape.
        dim, unbiased, keepdim, correction: as for :func:`var`.

    Returns:
        The input's shape without the axes; nan where there are too few elements.

    Raises:
        ArgumentError, DTypeError: as for :func:`var`.

    Example:
        >>> import dl4all as dl
        >>> dl.std(dl.tensor([1.0, 3.0]), correction=0).item()
        1.0
    """
    dim, correction = _arguments("std", dim, unbiased, correction)
    return variance.std(input, dim, correction=correction, keepdim=keepdim)


@export("dl", out=True)
def var_mean(
    input: Array,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Array, Array]:
    """The variance of the elements along axes, and their mean; arguments as for :func:`var`.

    Example:
        >>> import dl4all as dl
        >>> variance, mean = dl.var_mean(dl.tensor([1.0, 2.0, 3.0]))
        >>> variance.item(), mean.item()
        (1.0, 2.0)
    """
    dim, correction = _arguments("var_mean", dim, unbiased, correction)
    return variance.var(input, dim, correction=correction, keepdim=keepdim), mean(input, dim, keepdim)


@export("dl", out=True)
def std_mean(
    input: Array,
    dim: Dims = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Array, Array]:
    """The standard deviation of the elements along axes, and their mean; arguments as for :func:`std`.

    Example:
        >>> import dl4all as dl
        >>> deviation, mean = dl.std_mean(dl.tensor([1.0, 2.0, 3.0]))
        >>> deviation.item(), mean.item()
        (1.0, 2.0)
    """
    dim, correction = _arguments("std_mean", dim, unbiased, correction)
    return variance.std(input, dim, correction=correction, keepdim=keepdim), mean(input, dim, keepdim)


def _arguments(name: str, dim: Any, unbiased: bool | None, correction: Any) -> tuple[Any, Any]:
    """The axes, and the correction.

    Raises:
        ArgumentError: the correction is given twice.
    """
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise ArgumentError(f"[{name}] got unbiased and correction; give one of them")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return dim, correction
