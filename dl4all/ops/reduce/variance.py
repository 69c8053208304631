"""Variance and standard deviation over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.limits import real
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Dims, TensorBase
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, reduced_shape
from dl4all.ops.reduce.repetition import repetition
from dl4all.ops.reduce.sums import (
    AXES_EXAMPLES,
    EMPTY_EXAMPLES,
    accurate_sum,
    expand_reduced,
    mean,
    named_axes,
    reduced_numel,
)

VARIANCE_REDUCTION = Reduction("MOMENTS", "variance(s, p.number)")
STD_REDUCTION = Reduction("WIDE_MOMENTS", "deviation(s, p.number)")

SMALL_SQUARE = 1e-30
"""From here on the squares of deviations that count are no subnormal float32."""

# With a correction, the variance of a single element and its gradient are nan, which tests cannot compare.
VARIANCE_EXAMPLES = (
    *(case for case in AXES_EXAMPLES if case.shapes[0] not in ((), (3, 1))),
    *EMPTY_EXAMPLES,
    example((5, 7), dim=1, correction=0),
    example((), correction=0),
    example((3, 1), dim=1, correction=0, keepdim=True),
)


def _infer_variance(name: str) -> Callable[..., Result]:
    def infer(input: TensorBase, *, dim: Any, correction: float, keepdim: bool) -> Result:
        check_float(name, input)
        real(name, "correction", correction, finite=True)
        return reduced_shape(input.shape, axes_of(name, dim, len(input.shape)), keepdim), input.dtype

    return infer


def _variance_kernel(name: str, reduction: Reduction) -> Kernel:
    def run(out: TensorBase, input: TensorBase, *, dim: Any, correction: float, keepdim: bool) -> None:
        reduction(out, input, axes_of(name, dim, len(input.shape)), correction)

    return Kernel(run, reduction.shaders)


def _degrees_of_freedom(shape: tuple[int, ...], dim: Any, correction: float) -> float:
    """The divisor of the sum of squares."""
    return max(reduced_numel(shape, axes_of("var", dim, len(shape))) - correction, 0)


def _first_elements(x: Any, axes: tuple[int, ...]) -> Any:
    """The first element along axes. Equal elements minus it are exactly 0, but not minus their mean."""
    return x[tuple(slice(0, 1) if i in axes else slice(None) for i in range(len(x.shape)))]


def _host_variance(input: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    axes = axes_of("var", dim, input.ndim)
    x = input.astype(np.result_type(input.dtype, np.float32), copy=False)
    shifted = x - _first_elements(x, axes)
    number = np.asarray(reduced_numel(x.shape, axes) or math.nan, x.dtype)
    deviations = shifted - accurate_sum(shifted, axes, True, x.dtype) / number
    squares = accurate_sum(deviations * deviations, axes, keepdim, x.dtype)
    return squares / np.asarray(_degrees_of_freedom(x.shape, dim, correction), x.dtype)


def _shifted(input: Any, dim: Any) -> Any:
    """The elements minus the first one along axes."""
    return sub(input, tape.alias(_first_elements(input, axes_of("var", dim, len(input.shape)))))


def _variance_gradient(g: Any, input: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    scale = 2 / (_degrees_of_freedom(input.shape, dim, correction) or math.nan)
    shifted = _shifted(input, dim)
    deviations = sub(shifted, mean(shifted, dim, keepdim=True))
    return expand_reduced(g, input.shape, dim, keepdim) * deviations * scale


@op(
    infer=_infer_variance("var"),
    kernel=_variance_kernel("var", VARIANCE_REDUCTION),
    examples=VARIANCE_EXAMPLES,
    grad=_variance_gradient,
)
def var(input: Array, dim: Dims = None, *, correction: float = 1, keepdim: bool = False) -> Array:
    """The variance of the elements along axes.

    Args:
        input: floats of any shape.
        dim: an axis or several; all by default.
        correction: subtracted from the number of elements in the divisor: 1 for a sample (Bessel's
            correction), 0 for a whole population.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes; nan where there are too few elements.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.var(dl.tensor([1.0, 2.0, 3.0])).item()
        1.0
    """
    result = _host_variance(input, dim, correction, keepdim)
    # float32 may be too narrow for a sum of squares whose mean it can hold.
    if input.dtype == np.float32 and not np.isfinite(result).all():
        return _host_variance(input.astype(np.float64), dim, correction, keepdim).astype(np.float32)
    return result


def _std_gradient(g: Any, input: Any, result: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    divisor = where(eq(result, 0), 1.0, result)  # equal elements have no deviations that could be divided
    gradient, divisor = (expand_reduced(x, input.shape, dim, keepdim) for x in (g, divisor))
    scale = 1 / (_degrees_of_freedom(input.shape, dim, correction) or math.nan)
    ratios = true_divide(_shifted(input, dim), divisor)
    return gradient * sub(ratios, mean(ratios, dim, keepdim=True)) * scale


@op(
    infer=_infer_variance("std"),
    kernel=_variance_kernel("std", STD_REDUCTION),
    examples=VARIANCE_EXAMPLES,
    grad=_std_gradient,
)
def std(input: Array, dim: Dims = None, *, correction: float = 1, keepdim: bool = False) -> Array:
    """The standard deviation of the elements along axes: the square root of :func:`var`.

    Args:
        input: floats of any shape.
        dim: an axis or several; all by default.
        correction: as for :func:`var`.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes; nan where there are too few elements.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> dl.std(dl.tensor([1.0, 3.0]), correction=0).item()
        1.0
    """
    squares = _host_variance(input, dim, correction, keepdim)
    in_range = (squares > SMALL_SQUARE) & np.isfinite(squares)
    if input.dtype == np.float32 and not in_range.all():
        squares = _host_variance(input.astype(np.float64), dim, correction, keepdim)
    return np.sqrt(squares).astype(input.dtype, copy=False)


def _fold(name: str, of_elements: Callable[..., Any]) -> Callable[..., Any]:
    def fold(input: TensorBase, *, dim: Any, correction: float, keepdim: bool) -> Any:
        found = repetition(input, named_axes(input, dim=dim))
        if found is None:
            return None
        freedom = _degrees_of_freedom(input.shape, dim, correction)
        ratio = reduced_numel(input.shape, axes_of(name, dim, len(input.shape))) / (freedom or math.nan)
        scale = ratio if name == "var" else math.sqrt(ratio)
        return mul(of_elements(found.elements, dim, correction=0, keepdim=keepdim), scale)

    return fold


var.define_fold(_fold("var", var))
std.define_fold(_fold("std", std))
