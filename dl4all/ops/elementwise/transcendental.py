"""Roots, exponentials, logarithms, trigonometric and hyperbolic functions, error functions and powers.

Vulkan guarantees little accuracy for its built-in functions. The kernels call the functions in
``shaders/include/math``, which are accurate to a few units in the last place on every device whose sums and
products follow IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions.expression import power
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.logic import logical_and, where


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl="sqrt(x)", promotion="float", domain={"input": (0.1, 8)}, grad=lambda g, result: g / (result * 2)
)
def sqrt(input: Array) -> Array:
    """The square root of each element, nan below 0.

    Example:
        >>> import dl4all as dl
        >>> dl.sqrt(dl.tensor([1.0, 9.0])).tolist()
        [1.0, 3.0]
    """
    return np.sqrt(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl="1.0 / sqrt(x)",
    promotion="float",
    domain={"input": (0.1, 8)},
    grad=lambda g, result: g * (result * result * result) * -0.5,
)
def rsqrt(input: Array) -> Array:
    """The reciprocal of each element's square root.

    Example:
        >>> import dl4all as dl
        >>> dl.rsqrt(dl.tensor([1.0, 4.0])).tolist()
        [1.0, 0.5]
    """
    return 1 / np.sqrt(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(glsl="1.0 / x", promotion="float", grad=lambda g, result: -g * (result * result))
def reciprocal(input: Array) -> Array:
    """1 divided by each element.

    Example:
        >>> import dl4all as dl
        >>> dl.reciprocal(dl.tensor([2.0, -4.0])).tolist()
        [0.5, -0.25]
    """
    return 1 / input


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(glsl="expf(x)", promotion="float", grad=lambda g, result: g * result)
def exp(input: Array) -> Array:
    """e to the power of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.exp(dl.tensor([0.0, 1.0])).tolist()[0]
        1.0
    """
    return np.exp(input)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl="exp2f(x)", promotion="float", grad=lambda g, result: g * result * math.log(2))
def exp2(input: Array) -> Array:
    """2 to the power of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.exp2(dl.tensor([0.0, 3.0])).tolist()
        [1.0, 8.0]
    """
    return np.exp2(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(glsl="expm1f(x)", promotion="float", grad=lambda g, result: g * (result + 1))
def expm1(input: Array) -> Array:
    """e to the power of each element, minus 1, accurate for small elements too.

    Example:
        >>> import dl4all as dl
        >>> dl.expm1(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.expm1(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(glsl="logf(x)", promotion="float", domain={"input": (0.1, 8)}, grad=lambda g, input: g / input)
def log(input: Array) -> Array:
    """The natural logarithm of each element, nan below 0.

    Example:
        >>> import dl4all as dl
        >>> dl.log(dl.tensor([1.0])).tolist()
        [0.0]
    """
    return np.log(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl="log2f(x)",
    promotion="float",
    domain={"input": (0.1, 8)},
    grad=lambda g, input: g / (input * math.log(2)),
)
def log2(input: Array) -> Array:
    """The logarithm to the base 2 of each element, nan below 0.

    Example:
        >>> import dl4all as dl
        >>> dl.log2(dl.tensor([1.0, 8.0])).tolist()
        [0.0, 3.0]
    """
    return np.log2(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl="log10f(x)",
    promotion="float",
    domain={"input": (0.1, 8)},
    grad=lambda g, input: g / (input * math.log(10)),
)
def log10(input: Array) -> Array:
    """The logarithm to the base 10 of each element, nan below 0.

    Example:
        >>> import dl4all as dl
        >>> dl.log10(dl.tensor([1.0])).tolist()
        [0.0]
    """
    return np.log10(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl="log1pf(x)", promotion="float", domain={"input": (-0.9, 8)}, grad=lambda g, input: g / (input + 1)
)
def log1p(input: Array) -> Array:
    """The natural logarithm of 1 + each element, accurate for small elements too.

    Example:
        >>> import dl4all as dl
        >>> dl.log1p(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.log1p(input)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl="sinf(x)", promotion="float")
def sin(input: Array) -> Array:
    """The sine of each element, in radians.

    Example:
        >>> import dl4all as dl
        >>> dl.sin(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.sin(input)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl="cosf(x)", promotion="float", grad=lambda g, input: -g * sin(input))
def cos(input: Array) -> Array:
    """The cosine of each element, in radians.

    Example:
        >>> import dl4all as dl
        >>> dl.cos(dl.tensor([0.0])).tolist()
        [1.0]
    """
    return np.cos(input)


sin.defgrad(lambda g, input: g * cos(input))


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl="tanf(x)",
    promotion="float",
    domain={"input": (-1.2, 1.2)},
    grad=lambda g, result: g * (result * result + 1),
)
def tan(input: Array) -> Array:
    """The tangent of each element, in radians.

    Example:
        >>> import dl4all as dl
        >>> dl.tan(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.tan(input)


@export("dl", "Tensor", "Tensor_", aliases=("arcsin",), out=True, autocast="float32")
@elementwise(
    glsl="asinf(x)",
    promotion="float",
    domain={"input": (-0.9, 0.9)},
    grad=lambda g, input: g * rsqrt(1 - input * input),
)
def asin(input: Array) -> Array:
    """The angle between -pi/2 and pi/2 whose sine is each element.

    Example:
        >>> import dl4all as dl
        >>> dl.asin(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.arcsin(input)


@export("dl", "Tensor", "Tensor_", aliases=("arccos",), out=True, autocast="float32")
@elementwise(
    glsl="acosf(x)",
    promotion="float",
    domain={"input": (-0.9, 0.9)},
    grad=lambda g, input: -g * rsqrt(1 - input * input),
)
def acos(input: Array) -> Array:
    """The angle between 0 and pi whose cosine is each element.

    Example:
        >>> import dl4all as dl
        >>> dl.acos(dl.tensor([1.0])).tolist()
        [0.0]
    """
    return np.arccos(input)


@export("dl", "Tensor", "Tensor_", aliases=("arctan",), out=True)
@elementwise(glsl="atanf(x)", promotion="float", grad=lambda g, input: g / (input * input + 1))
def atan(input: Array) -> Array:
    """The angle between -pi/2 and pi/2 whose tangent is each element.

    Example:
        >>> import dl4all as dl
        >>> dl.atan(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.arctan(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(glsl="sinhf(x)", promotion="float")
def sinh(input: Array) -> Array:
    """The hyperbolic sine of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.sinh(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.sinh(input)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(glsl="coshf(x)", promotion="float", grad=lambda g, input: g * sinh(input))
def cosh(input: Array) -> Array:
    """The hyperbolic cosine of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.cosh(dl.tensor([0.0])).tolist()
        [1.0]
    """
    return np.cosh(input)


sinh.defgrad(lambda g, input: g * cosh(input))


@export("dl", "Tensor", "Tensor_", "F", out=True)
@elementwise(glsl="tanhf(x)", promotion="float")
def tanh(input: Array) -> Array:
    """The hyperbolic tangent of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.tanh(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return np.tanh(input)


@export()
@elementwise(glsl="a * (1.0 - b * b)", promotion="float")
def tanh_backward(grad: Array, output: Array) -> Array:
    """The gradient of :func:`tanh`, whose result is `output`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.tanh_backward(dl.tensor([1.0]), dl.tensor([0.5])).tolist()
        [0.75]
    """
    return grad * (1 - output * output)


tanh.defgrad(lambda g, result: tanh_backward(g, result))
tanh_backward.defgrad(
    lambda g, output: tanh_backward(g, output), lambda g, grad, output: g * grad * output * -2
)


@export("dl", "Tensor", "Tensor_", out=True)
def square(input: Array) -> Array:
    """The square of each element, of bools as int64.

    Example:
        >>> import dl4all as dl
        >>> dl.square(dl.tensor([1.5, -2.0])).tolist()
        [2.25, 4.0]
    """
    return mul(input, input) if kind_of(input.dtype) != "b" else pow(input, 2)


def _inverse_square_length(input: Any, other: Any) -> Any:
    """``1 / (input**2 + other**2)``; 0 at the origin, where the angle has no slope."""
    squares = input * input + other * other
    return where(squares == 0, 0.0, reciprocal(squares))


@export("dl", "Tensor", "Tensor_", aliases=("arctan2",), out=True, autocast="widest")
@elementwise(
    glsl="atan2f(a, b)",
    promotion="float",
    grad=(
        lambda g, input, other: g * other * _inverse_square_length(input, other),
        lambda g, input, other: -g * input * _inverse_square_length(input, other),
    ),
)
def atan2(input: Array, other: Array) -> Array:
    """The angle between -pi and pi of each point with x `other` and y `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.atan2(dl.tensor([0.0]), dl.tensor([2.0])).tolist()
        [0.0]
    """
    return np.arctan2(input, other)


def map_elements(function: Callable[[float], float], array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A function of one number, such as those of Python's math, applied to each element."""
    results = np.fromiter(map(function, array.ravel().tolist()), np.float64, array.size)
    return results.reshape(array.shape).astype(array.dtype)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl="erff(x)",
    promotion="float",
    grad=lambda g, input: g * exp(-input * input) * (2 / math.sqrt(math.pi)),
)
def erf(input: Array) -> Array:
    """The error function of each element.

    Example:
        >>> import dl4all as dl
        >>> dl.erf(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return map_elements(math.erf, input)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(
    glsl="erfcf(x)",
    promotion="float",
    grad=lambda g, input: g * exp(-input * input) * (-2 / math.sqrt(math.pi)),
)
def erfc(input: Array) -> Array:
    """1 - :func:`erf` of each element, accurate where :func:`erf` is close to 1 too.

    Example:
        >>> import dl4all as dl
        >>> dl.erfc(dl.tensor([0.0])).tolist()
        [1.0]
    """
    return map_elements(math.erfc, input)


# Powers


def _base_gradient(g: Any, input: Any, exponent: Any) -> Any:
    if isinstance(exponent, NUMBERS):
        if exponent in (0, 1, 2):
            return g * (exponent if exponent < 2 else input * 2)
        return g * (pow(input, exponent - 1) * exponent)
    slope = exponent * pow(input, exponent - 1)
    return g * where(exponent == 0, 0.0, slope)


def _exponent_gradient(g: Any, input: Any, exponent: Any, result: Any) -> Any:
    if isinstance(input, NUMBERS):
        logarithm = math.log(input) if input > 0 else -math.inf if input == 0 else math.nan
    else:
        logarithm = log(input)
    slope = result * logarithm
    # A power of 0 stays 0 for every exponent that is not negative.
    is_constant = logical_and(input == 0, exponent >= 0)
    return g * where(is_constant, 0.0, slope)


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl=dict.fromkeys(("float32", "int32", "int64"), "powf(a, b)"),
    kinds="iuf",
    domain={"input": (0.2, 3)},
)
def pow(input: Array, exponent: Array) -> Array:
    """Each element to the power of another, as ``**``; nan for fractional powers of negative elements.

    Example:
        >>> import dl4all as dl
        >>> (dl.tensor([2.0, 3.0]) ** 2).tolist()
        [4.0, 9.0]
    """
    return power(input, exponent)


pow.defgrad(_base_gradient, _exponent_gradient)
