"""Elementwise functions of one tensor that are composed of ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.functions.host import computed_on_host, numbers, to_device_of
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOATING, HALVES, kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul, neg, sub, true_divide
from dl4all.ops.elementwise.comparison import clamp, eq, gt, lt
from dl4all.ops.elementwise.logic import logical_and, logical_or, where
from dl4all.ops.elementwise.rounding import abs, sign, trunc, zero
from dl4all.ops.elementwise.transcendental import cos, log, log1p, pow, reciprocal, rsqrt, sin, sqrt
from dl4all.ops.memory.conversion import cast, in_float32

# From here on sqrt(x * x + 1) and sqrt(x * x - 1) equal x in float32, and x * x may overflow.
LARGE_ARGUMENT = 1e6


def as_float(input: Array) -> Array:
    """The input, cast to float32 if it is of integers or bools."""
    return input if input.dtype in FLOATING else cast(input, "float32")


def with_derivative(
    name: str, input: Array, function: Callable[[Array], Array], derivative: Callable[[Array], Array]
) -> Array:
    """A function with its derivative in closed form, where the chain rule through the ops would give nan."""
    x = as_float(input)
    if x.dtype in HALVES:  # whose squares and exponentials overflow
        return in_float32(lambda x: with_derivative(name, x, function, derivative), x)
    with tape.gradients(False):
        result = function(x)
    tape.add_node(
        name, [x], [result], lambda grads, saved, needs: [mul(grads[0], derivative(saved[0]))], (x,)
    )
    return result


def _asinh(x: Array) -> Array:
    magnitude = abs(x)
    large = magnitude > LARGE_ARGUMENT
    moderate = where(large, 1.0, magnitude)
    near = log1p(moderate + true_divide(moderate * moderate, sqrt(moderate * moderate + 1) + 1))
    far = log(where(large, magnitude, 1.0)) + math.log(2)
    # x itself at 0 keeps the sign of -0.0; the last term keeps nan.
    return where(eq(x, 0), x, sign(x) * where(large, far, near)) + where(eq(x, x), 0.0, x)


@export("dl", "Tensor", "Tensor_", aliases=("arcsinh",), out=True)
def asinh(input: Array) -> Array:
    """The inverse hyperbolic sine of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.asinh(dl.tensor([0.0, 1.1752012])).round(decimals=4).tolist()
        [0.0, 1.0]
    """
    return with_derivative("asinh", input, _asinh, lambda x: rsqrt(x * x + 1))


def _acosh(x: Array) -> Array:
    large = x > LARGE_ARGUMENT
    excess = sub(where(large, 1.0, x), 1)
    near = log1p(excess + sqrt(excess * (excess + 2)))
    far = log(where(large, x, 1.0)) + math.log(2)
    return where(x < 1, math.nan, where(large, far, near))


@export("dl", "Tensor", "Tensor_", aliases=("arccosh",), out=True)
def acosh(input: Array) -> Array:
    """The inverse hyperbolic cosine of each element, at least 0; nan below 1.

    Example:
        >>> import dl4all as dl
        >>> dl.acosh(dl.tensor([1.0, 1.5430806])).round(decimals=4).tolist()
        [0.0, 1.0]
    """
    return with_derivative("acosh", input, _acosh, lambda x: rsqrt((x - 1) * (x + 1)))


def _atanh(x: Array) -> Array:
    magnitude = abs(x)
    twice = log1p(true_divide(2 * magnitude, 1 - magnitude))
    return where(eq(x, 0), x, 0.5 * sign(x) * twice) + where(eq(x, x), 0.0, x)


@export("dl", "Tensor", "Tensor_", aliases=("arctanh",), out=True)
def atanh(input: Array) -> Array:
    """The inverse hyperbolic tangent of each element; infinite for 1 and -1, nan beyond.

    Example:
        >>> import dl4all as dl
        >>> dl.atanh(dl.tensor([0.0, 0.7615942])).round(decimals=4).tolist()
        [0.0, 1.0]
    """
    return with_derivative("atanh", input, _atanh, lambda x: reciprocal((1 - x) * (1 + x)))


@export("dl", "Tensor", "Tensor_", out=True)
def frac(input: Array) -> Array:
    """The fractional part of each element, with the sign of the element.

    Example:
        >>> import dl4all as dl
        >>> dl.frac(dl.tensor([1.5, -2.25])).tolist()
        [0.5, -0.25]
    """
    return sub(input, trunc(input))


@export("dl", "Tensor", "Tensor_", out=True)
def deg2rad(input: Array) -> Array:
    """Angles converted from degrees to radians.

    Example:
        >>> import dl4all as dl
        >>> dl.deg2rad(dl.tensor([180.0])).round(decimals=4).tolist()
        [3.1415998935699463]
    """
    return mul(input, math.pi / 180)


@export("dl", "Tensor", "Tensor_", out=True)
def rad2deg(input: Array) -> Array:
    """Angles converted from radians to degrees.

    Example:
        >>> import dl4all as dl
        >>> dl.rad2deg(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return mul(input, 180 / math.pi)


@export("dl", "Tensor", "Tensor_", out=True)
def sinc(input: Array) -> Array:
    """``sin(pi x) / (pi x)`` of each element, 1 at 0.

    Example:
        >>> import dl4all as dl
        >>> dl.sinc(dl.tensor([0.0, 0.5])).round(decimals=4).tolist()
        [1.0, 0.6366000175476074]
    """
    return with_derivative("sinc", input, _sinc, _sinc_derivative)


def _sinc(x: Array) -> Array:
    origin = eq(x, 0)
    angle = where(origin, 1.0, x) * math.pi
    return where(origin, 1.0, true_divide(sin(angle), angle))


def _sinc_derivative(x: Array) -> Array:
    angle, divisor = x * math.pi, x * x * math.pi
    near = eq(divisor, 0)  # there the derivative is about -3.3 x
    return where(near, 0.0, true_divide(angle * cos(angle) - sin(angle), where(near, 1.0, divisor)))


@export("dl", "Tensor", "Tensor_", out=True)
def logit(input: Array, eps: float | None = None) -> Array:
    """The logarithm of ``x / (1 - x)``, the inverse of :func:`sigmoid`.

    Args:
        input: floats from 0 to 1.
        eps: elements are clamped to the range from `eps` to ``1 - eps`` first.

    Example:
        >>> import dl4all as dl
        >>> dl.logit(dl.tensor([0.5, 0.0]), eps=0.25).round(decimals=4).tolist()
        [0.0, -1.0986000299453735]
    """
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1 - eps, 0.0)

    def function(x: Array) -> Array:
        probability = x if eps is None else clamp(x, low, high)
        return log(true_divide(probability, 1 - probability))

    def derivative(x: Array) -> Array:  # not by the chain rule, which divides by 0 at 0
        return where(logical_or(lt(x, low), gt(x, high)), outside, reciprocal(x * (1 - x)))

    return with_derivative("logit", input, function, derivative)


@export("dl", "Tensor", out=True)
def signbit(input: Array) -> Array:
    """Whether elements are negative; true for -0.0 where the device keeps its sign.

    Example:
        >>> import dl4all as dl
        >>> dl.signbit(dl.tensor([1.0, -2.0, 0.0])).tolist()
        [False, True, False]
    """
    negative = lt(input, 0)
    if kind_of(input.dtype) != "f":
        return negative
    return logical_or(negative, logical_and(eq(input, 0), lt(reciprocal(input), 0)))


@export("dl", "Tensor", out=True)
def isneginf(input: Array) -> Array:
    """Whether elements are minus infinity.

    Example:
        >>> import dl4all as dl
        >>> dl.isneginf(dl.tensor([1.0, -float("inf")])).tolist()
        [False, True]
    """
    return eq(input, -math.inf)


@export("dl", "Tensor", out=True)
def isposinf(input: Array) -> Array:
    """Whether elements are plus infinity.

    Example:
        >>> import dl4all as dl
        >>> dl.isposinf(dl.tensor([1.0, float("inf")])).tolist()
        [False, True]
    """
    return eq(input, math.inf)


@export("dl", "Tensor")
def isreal(input: Array) -> Array:
    """True for every element, because there are no complex dtypes.

    Example:
        >>> import dl4all as dl
        >>> dl.isreal(dl.tensor([1.0, float("nan")])).tolist()
        [True, True]
    """
    return eq(zero(input), 0)


@export("dl")
def is_nonzero(input: Array) -> bool:
    """Whether the only element is not 0.

    Raises:
        ArgumentError: there is not exactly one element.

    Example:
        >>> import dl4all as dl
        >>> dl.is_nonzero(dl.tensor([2.0]))
        True
    """
    if input.numel() != 1:
        raise ArgumentError(f"[is_nonzero] expected one element, the shape is {input.shape}")
    return bool(input.item())


@export("dl")
def real(input: Array) -> Array:
    """The input itself: its elements are real numbers.

    Example:
        >>> import dl4all as dl
        >>> dl.real(dl.tensor([1.0, -2.0])).tolist()
        [1.0, -2.0]
    """
    return input


@export("dl", "Tensor")
def positive(input: Array) -> Array:
    """The input itself.

    Raises:
        ArgumentError: the input is of bools.

    Example:
        >>> import dl4all as dl
        >>> dl.positive(dl.tensor([1.0, -2.0])).tolist()
        [1.0, -2.0]
    """
    if kind_of(input.dtype) == "b":
        raise ArgumentError("[positive] expected numbers, got bool; convert with .to('int64')")
    return input


class MantissaAndExponent(NamedTuple):
    """The results of :func:`frexp`."""

    mantissa: Array
    exponent: Array


@export("dl", "Tensor")
@reads("input")
def frexp(input: Array) -> MantissaAndExponent:
    """Mantissas from 0.5 to 1, or 0, and exponents: ``input = mantissa * 2 ** exponent``.

    Args:
        input: floats.

    Returns:
        ``mantissa`` of the input's dtype, with a gradient, and ``exponent`` of int32.

    Raises:
        DTypeError: the input is not of floats.

    Example:
        >>> import dl4all as dl
        >>> mantissa, exponent = dl.frexp(dl.tensor([6.0, -0.5]))
        >>> mantissa.tolist(), exponent.tolist()
        ([0.75, -0.5], [3, 0])
    """
    check_float("frexp", input)
    mantissa, exponent = _split(tape.alias(input))
    tape.add_node(
        "frexp",
        [input],
        [mantissa],
        lambda grads, saved, needs: [mul(grads[0], pow(2.0, cast(neg(saved[0]), grads[0].dtype.name)))],
        (exponent,),
    )
    return MantissaAndExponent(mantissa, exponent)


@computed_on_host("frexp")
def _split(input: Array) -> tuple[Array, Array]:
    mantissa, exponent = map(np.asarray, np.frexp(numbers(input)))
    mantissa = mantissa.astype(input.dtype, copy=False)  # of bfloat16 it came as float32, and fits
    return to_device_of(input, mantissa), to_device_of(input, exponent.astype(np.int32))
