"""Absolute value, sign, rounding and remainders: piecewise linear functions, whose slopes are 0, 1 or -1."""

from __future__ import annotations

import numpy as np

from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import true_divide
from dl4all.ops.elementwise.declare import elementwise

MOST_DECIMALS = 308
"""The largest power of 10 that float64 holds."""


@export()
@elementwise(glsl="0.0", promotion="float")
def zero(input: Array) -> Array:
    """Zeros of the same shape: the gradient of step functions, even where the result's gradient is nan.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.zero(dl.tensor([1.0, float("nan")])).tolist()
        [0.0, 0.0]
    """
    return np.zeros_like(input)


zero.defgrad(lambda g: zero(g))


@export("dl", "Tensor", "Tensor_", aliases=("absolute",), out=True)
@elementwise(
    glsl={"float32": "abs(x)", "int32": "abs(x)", "int64": "magnitude(x)", "uint8": "x"},
    kinds="iuf",
)
def abs(input: Array) -> Array:
    """The absolute value of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.abs(dl.tensor([-1.5, 2.0])).tolist()
        [1.5, 2.0]
    """
    return np.abs(input)


@export("dl", "Tensor", "Tensor_", aliases=("sgn",), out=True)
@elementwise(
    glsl={
        "float32": "x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0",
        "int32": "sign(x)",
        "int64": "signum(x)",
        "uint8": "x != 0",
        "bool": "x",
    },
    grad=lambda g: zero(g),
)
def sign(input: Array) -> Array:
    """1 for elements above 0, -1 for those below, and 0 for 0 and nan.

    Example:
        >>> import dl4all as dl
        >>> dl.sign(dl.tensor([-1.5, 0.0, 2.0])).tolist()
        [-1.0, 0.0, 1.0]
    """
    return np.asarray(np.greater(input, 0).astype(np.int8) - np.less(input, 0), input.dtype)


abs.defgrad(lambda g, input: g * sign(input))

UNCHANGED_INTEGERS = {"int32": "x", "int64": "x", "uint8": "x"}  # of functions that round


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl={"float32": "floor(x)"} | UNCHANGED_INTEGERS, kinds="iuf", grad=lambda g: zero(g))
def floor(input: Array) -> Array:
    """The largest integer that is not above each element.

    Example:
        >>> import dl4all as dl
        >>> dl.floor(dl.tensor([-1.5, 1.5])).tolist()
        [-2.0, 1.0]
    """
    return np.floor(input) if kind_of(input.dtype) == "f" else input


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl={"float32": "ceil(x)"} | UNCHANGED_INTEGERS, kinds="iuf", grad=lambda g: zero(g))
def ceil(input: Array) -> Array:
    """The smallest integer that is not below each element.

    Example:
        >>> import dl4all as dl
        >>> dl.ceil(dl.tensor([-1.5, 1.5])).tolist()
        [-1.0, 2.0]
    """
    return np.ceil(input) if kind_of(input.dtype) == "f" else input


@export("dl", "Tensor", "Tensor_", aliases=("fix",), out=True)
@elementwise(glsl={"float32": "trunc(x)"} | UNCHANGED_INTEGERS, kinds="iuf", grad=lambda g: zero(g))
def trunc(input: Array) -> Array:
    """Each element without its fraction.

    Example:
        >>> import dl4all as dl
        >>> dl.trunc(dl.tensor([-1.5, 1.5])).tolist()
        [-1.0, 1.0]
    """
    return np.trunc(input) if kind_of(input.dtype) == "f" else input


@export()
@elementwise(glsl={"float32": "roundEven(x)"} | UNCHANGED_INTEGERS, kinds="iuf", grad=lambda g: zero(g))
def round_even(input: Array) -> Array:
    """The nearest integer, ties to even: :func:`round` without decimals.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.round_even(dl.tensor([0.5, 1.5, 2.6])).tolist()
        [0.0, 2.0, 3.0]
    """
    return np.rint(input) if kind_of(input.dtype) == "f" else input


@export("dl", "Tensor", "Tensor_", out=True)
def round(input: Array, *, decimals: int = 0) -> Array:
    """Each element rounded to a number of decimals, ties to even; its gradient is 0.

    Raises:
        ArgumentError: `decimals` is no int from -308 to 308.

    Example:
        >>> import dl4all as dl
        >>> dl.round(dl.tensor([0.5, 1.5, -2.6])).tolist()
        [0.0, 2.0, -3.0]
    """
    integer("round", "decimals", decimals, -MOST_DECIMALS, MOST_DECIMALS)
    if decimals == 0 or kind_of(input.dtype) != "f":
        return round_even(input)
    if decimals < 0:
        return round_even(input / 10.0**-decimals) * 10.0**-decimals
    return round_even(input * 10.0**decimals) / 10.0**decimals


# Remainders


def _call_for_dtypes(function: str) -> dict[str, str]:
    """A call of a function that include/math/remainder.glsl has for floats and for ints."""
    return dict.fromkeys(("float32", "int32", "int64", "uint8"), f"{function}(a, b)")


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl=_call_for_dtypes("remainderf"),
    kinds="iuf",
)
def remainder(input: Array, other: Array) -> Array:
    """The remainder of a division whose quotient is rounded down, as ``%``: it has the divisor's sign.

    The remainder of an integer divided by 0 is 0.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([5.0, -5.0]) % 3).tolist()
        [2.0, 1.0]
    """
    return np.remainder(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl=_call_for_dtypes("fmodf"),
    kinds="iuf",
    grad=(lambda g: g, lambda g, input, other: -g * trunc(true_divide(input, other))),
)
def fmod(input: Array, other: Array) -> Array:
    """The remainder of a division whose quotient is rounded toward 0: it has the dividend's sign.

    The remainder of an integer divided by 0 is 0.

    Example:
        >>> import dl4all as dl
        >>> dl.fmod(dl.tensor([5.0, -5.0]), 3).tolist()
        [2.0, -2.0]
    """
    return np.fmod(input, other)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl=_call_for_dtypes("floor_dividef"), kinds="iuf", grad=(lambda g: zero(g), lambda g: zero(g)))
def floor_divide(input: Array, other: Array) -> Array:
    """The quotient of each pair of elements, rounded down, as ``//``.

    An integer divided by 0 gives 0, where PyTorch's CPU raises: devices cannot without waiting.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([5.0, -5.0]) // 3).tolist()
        [1.0, -2.0]
    """
    return np.floor_divide(input, other)


remainder.defgrad(lambda g: g, lambda g, input, other: -g * floor_divide(input, other))
