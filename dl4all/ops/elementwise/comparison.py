"""Comparisons, maximum and minimum of two tensors, and clamping."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import FLOATING, finfo
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.elementwise.arithmetic import clone
from dl4all.ops.elementwise.declare import elementwise, same_for_dtypes
from dl4all.ops.elementwise.logic import where

# The dtypes beside float32 and int32 that the kernels for comparisons take, four elements per word.
BYTE_DTYPES = ("uint8", "bool")


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=same_for_dtypes("a == b", *BYTE_DTYPES, "int64"), result="bool")
def eq(input: Array, other: Array) -> Array:
    """Whether elements are equal, as ``==``; nan equals nothing.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([1.0, 2.0]) == 2).tolist()
        [False, True]
    """
    return np.equal(input, other)


# Not a != b, which some compilers of GLSL make false for nan.
@export("dl", "Tensor", "Tensor_", aliases=("not_equal",), out=True)
@elementwise(glsl=same_for_dtypes("!(a == b)", *BYTE_DTYPES, "int64"), result="bool")
def ne(input: Array, other: Array) -> Array:
    """Whether elements differ, as ``!=``; nan differs from everything.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([1.0, 2.0]) != 2).tolist()
        [True, False]
    """
    return np.not_equal(input, other)


@export("dl", "Tensor", "Tensor_", aliases=("less",), out=True)
@elementwise(glsl=same_for_dtypes("a < b", *BYTE_DTYPES) | {"int64": "less(a, b)"}, result="bool")
def lt(input: Array, other: Array) -> Array:
    """Whether elements are less than others, as ``<``.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([1.0, 2.0]) < 2).tolist()
        [True, False]
    """
    return np.less(input, other)


@export("dl", "Tensor", "Tensor_", aliases=("less_equal",), out=True)
@elementwise(glsl=same_for_dtypes("a <= b", *BYTE_DTYPES) | {"int64": "!less(b, a)"}, result="bool")
def le(input: Array, other: Array) -> Array:
    """Whether elements are less than others or equal, as ``<=``.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([1.0, 3.0]) <= 2).tolist()
        [True, False]
    """
    return np.less_equal(input, other)


@export("dl", "Tensor", "Tensor_", aliases=("greater",), out=True)
@elementwise(glsl=same_for_dtypes("a > b", *BYTE_DTYPES) | {"int64": "less(b, a)"}, result="bool")
def gt(input: Array, other: Array) -> Array:
    """Whether elements are greater than others, as ``>``.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([1.0, 3.0]) > 2).tolist()
        [False, True]
    """
    return np.greater(input, other)


@export("dl", "Tensor", "Tensor_", aliases=("greater_equal",), out=True)
@elementwise(glsl=same_for_dtypes("a >= b", *BYTE_DTYPES) | {"int64": "!less(a, b)"}, result="bool")
def ge(input: Array, other: Array) -> Array:
    """Whether elements are greater than others or equal, as ``>=``.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([1.0, 2.0]) >= 2).tolist()
        [False, True]
    """
    return np.greater_equal(input, other)


@export("dl", "Tensor")
@elementwise(
    glsl={"float32": "is_nan(x)"} | dict.fromkeys(("int32", "int64", *BYTE_DTYPES), "false"), result="bool"
)
def isnan(input: Array) -> Array:
    """Whether elements are nan.

    Example:
        >>> import dl4all as dl
        >>> dl.isnan(dl.tensor([1.0, float("nan")])).tolist()
        [False, True]
    """
    return np.isnan(input)


@export("dl", "Tensor")
@elementwise(
    glsl={"float32": "is_inf(x)"} | dict.fromkeys(("int32", "int64", *BYTE_DTYPES), "false"), result="bool"
)
def isinf(input: Array) -> Array:
    """Whether elements are infinite.

    Example:
        >>> import dl4all as dl
        >>> dl.isinf(dl.tensor([1.0, -float("inf")])).tolist()
        [False, True]
    """
    return np.isinf(input)


@export("dl", "Tensor")
@elementwise(
    glsl={"float32": "is_finite(x)"} | dict.fromkeys(("int32", "int64", *BYTE_DTYPES), "true"), result="bool"
)
def isfinite(input: Array) -> Array:
    """Whether elements are neither infinite nor nan.

    Example:
        >>> import dl4all as dl
        >>> dl.isfinite(dl.tensor([1.0, float("nan")])).tolist()
        [True, False]
    """
    return np.isfinite(input)


# Maximum and minimum


@export("dl", "Tensor", out=True)
@elementwise(glsl=same_for_dtypes("larger(a, b)", *BYTE_DTYPES, "int64"))
def maximum(input: Array, other: Array) -> Array:
    """The larger of each pair of elements; nan if one of them is nan.

    Example:
        >>> import dl4all as dl
        >>> dl.maximum(dl.tensor([1.0, 3.0]), dl.tensor([2.0, 2.0])).tolist()
        [2.0, 3.0]
    """
    return np.maximum(input, other)


@export("dl", "Tensor", out=True)
@elementwise(glsl=same_for_dtypes("smaller(a, b)", *BYTE_DTYPES, "int64"))
def minimum(input: Array, other: Array) -> Array:
    """The smaller of each pair of elements; nan if one of them is nan.

    Example:
        >>> import dl4all as dl
        >>> dl.minimum(dl.tensor([1.0, 3.0]), dl.tensor([2.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return np.minimum(input, other)


@export()
@elementwise(glsl="b < c ? 0.0 : b == c ? 0.5 * a : a", promotion="float")
def maximum_backward(grad: Array, input: Array, other: Array) -> Array:
    """The gradient of :func:`maximum` for `input`: half of `grad` where both elements are equal.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.maximum_backward(dl.tensor([1.0, 1.0]), 2.0, dl.tensor([2.0, 3.0])).tolist()
        [0.5, 0.0]
    """
    return np.where(input < other, grad.dtype.type(0), np.where(input == other, grad / 2, grad))


maximum.defgrad(
    lambda g, input, other: maximum_backward(g, input, other),
    lambda g, input, other: maximum_backward(g, other, input),
)
minimum.defgrad(
    lambda g, input, other: maximum_backward(g, other, input),
    lambda g, input, other: maximum_backward(g, input, other),
)
maximum_backward.defgrad(lambda g, input, other: maximum_backward(g, input, other), None, None)

# Clamping


@export()
@elementwise(
    glsl=same_for_dtypes("a >= b && a <= c", *BYTE_DTYPES) | {"int64": "!less(a, b) && !less(c, a)"},
    result="bool",
)
def in_range(input: Array, min: Array, max: Array) -> Array:
    """Whether elements lie between two limits, which are included.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.in_range(dl.tensor([0.0, 1.0, 2.0]), 1, 1.5).tolist()
        [False, True, False]
    """
    return (input >= min) & (input <= max)


def _clamp_min_gradient(g: Any, input: Any, min: Any, max: Any) -> Any:
    return where((input < min) & (min < max), g, 0.0)


def _clamp_max_gradient(g: Any, input: Any, min: Any, max: Any) -> Any:
    return where((input > max) | (max < min), g, 0.0)


@export()
@elementwise(
    glsl=same_for_dtypes("smaller(larger(a, b), c)", *BYTE_DTYPES, "int64"),
    grad=(
        lambda g, input, min, max: where(in_range(input, min, max), g, 0.0),
        _clamp_min_gradient,
        _clamp_max_gradient,
    ),
)
def clamp_unchecked(input: Array, min: Array, max: Array) -> Array:
    """The elements, clamped to the interval from `min` to `max`: :func:`clamp` with both limits.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.clamp_unchecked(dl.tensor([-1.0, 0.5, 2.0]), 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    return np.minimum(np.maximum(input, min), max)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl=same_for_dtypes("larger(a, b)", *BYTE_DTYPES, "int64"),
    grad=(
        lambda g, input, min: where(input >= min, g, 0.0),
        lambda g, input, min: where(input < min, g, 0.0),
    ),
)
def clamp_min(input: Array, min: Array) -> Array:
    """The elements, no less than `min`.

    Example:
        >>> import dl4all as dl
        >>> dl.clamp_min(dl.tensor([-1.0, 2.0]), 0.0).tolist()
        [0.0, 2.0]
    """
    return np.maximum(input, min)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl=same_for_dtypes("smaller(a, b)", *BYTE_DTYPES, "int64"),
    grad=(
        lambda g, input, max: where(input <= max, g, 0.0),
        lambda g, input, max: where(input > max, g, 0.0),
    ),
)
def clamp_max(input: Array, max: Array) -> Array:
    """The elements, no more than `max`.

    Example:
        >>> import dl4all as dl
        >>> dl.clamp_max(dl.tensor([-1.0, 2.0]), 1.0).tolist()
        [-1.0, 1.0]
    """
    return np.minimum(input, max)


@export("dl", "Tensor", "Tensor_", aliases=("clip",), out=True)
def clamp(input: TensorBase, min: Array | Scalar | None = None, max: Array | Scalar | None = None) -> Array:
    """The elements, clamped to the interval from `min` to `max`, of which one may be left out.

    Where `min` is more than `max`, the result is `max`; nan stays nan.

    Raises:
        ArgumentError: both limits are left out.

    Example:
        >>> import dl4all as dl
        >>> dl.clamp(dl.tensor([-1.0, 0.5, 2.0]), 0.0, 1.0).tolist()
        [0.0, 0.5, 1.0]
    """
    if min is None and max is None:
        raise ArgumentError("[clamp] expected min, max or both")
    if max is None:
        return clamp_min(input, min)
    return clamp_max(input, max) if min is None else clamp_unchecked(input, min, max)


@export("dl", "Tensor", "Tensor_", out=True)
def nan_to_num(
    input: TensorBase, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """The elements, with nan and infinities replaced by numbers.

    Args:
        input: any shape.
        nan: replaces nan.
        posinf, neginf: replace the infinities; by default the largest and the smallest finite number.

    Example:
        >>> import dl4all as dl
        >>> dl.nan_to_num(dl.tensor([float("nan"), 1.0, float("inf")]), posinf=9.0).tolist()
        [0.0, 1.0, 9.0]
    """
    if input.dtype not in FLOATING:
        return clone(input)
    largest = float(finfo(input.dtype).max)
    result = where(isnan(input), nan, input)
    result = where(eq(input, np.inf), largest if posinf is None else posinf, result)
    return where(eq(input, -np.inf), -largest if neginf is None else neginf, result)
