"""Smooth activation functions and their gradients: sigmoid, softplus, SiLU, GELU and variants."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions.branchless import logistic, logistic_slope, select
from dl4all.ops.core.op import primitives
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.comparison import gt
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import exp, map_elements, tanh
from dl4all.ops.memory.parts import index


@export("dl", "Tensor", "Tensor_", "F", out=True)
@elementwise(glsl="sigmoidf(x)", promotion="float")
def sigmoid(input: Array) -> Array:
    """The logistic function, ``1 / (1 + exp(-element))``.

    Example:
        >>> import dl4all as dl
        >>> dl.sigmoid(dl.tensor([0.0])).tolist()
        [0.5]
    """
    return logistic(input)


@export()
@elementwise(glsl="a * b * (1.0 - b)", promotion="float")
def sigmoid_backward(grad: Array, output: Array) -> Array:
    """The gradient of :func:`sigmoid`, whose result is `output`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.sigmoid_backward(dl.tensor([4.0]), dl.tensor([0.5])).tolist()
        [1.0]
    """
    return grad * output * (1 - output)


sigmoid.defgrad(lambda g, result: sigmoid_backward(g, result))
sigmoid_backward.defgrad(
    lambda g, output: sigmoid_backward(g, output), lambda g, grad, output: g * grad * (1 - output * 2)
)


@export("F")
@elementwise(
    glsl="min(x, 0.0) - log1pf(expf(-abs(x)))",
    promotion="float",
    grad=lambda g, input: g * sigmoid(-input),
)
def logsigmoid(input: Array) -> Array:
    """The logarithm of :func:`sigmoid`, accurate for elements far below 0 too.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.logsigmoid(dl.tensor([200.0])).tolist()
        [0.0]
    """
    return np.minimum(input, 0) - np.log1p(np.exp(-np.abs(input)))


@export("F")
@elementwise(glsl="x * sigmoidf(x)", promotion="float")
def silu(input: Array, inplace: bool = False) -> Array:
    """Each element times its :func:`sigmoid`, also known as swish.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.silu(dl.tensor([0.0])).tolist()
        [0.0]
    """
    result = logistic(input)
    result *= input
    return result


@export()
@elementwise(glsl="a * sigmoidf(b) * (1.0 + b * sigmoidf(-b))", promotion="float")
def silu_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`silu`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.silu_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    value, slope = logistic_slope(input)
    slope *= input
    slope += value
    return grad * slope


def _silu_backward_gradient(g: Any, grad: Any, input: Any) -> Any:
    s = sigmoid(input)
    return g * grad * (s * (1 - s) * (input * (1 - s * 2) + 2))


silu.defgrad(lambda g, input: silu_backward(g, input))
silu_backward.defgrad(lambda g, input: silu_backward(g, input), _silu_backward_gradient)


@export("F")
def mish(input: Array, inplace: bool = False) -> Array:
    """Each element times the hyperbolic tangent of its :func:`softplus` (Misra, arXiv:1908.08681).

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.mish(dl.tensor([0.0])).tolist()
        [0.0]
    """
    result: Array = (primitives.in_place(_mish) if inplace else _mish)(input)
    return result


def _mish(input: Array) -> Array:
    return input * tanh(softplus(input))


@export("F", autocast="float32")
@elementwise(glsl="x * p.beta > p.threshold ? x : log1pf(expf(x * p.beta)) / p.beta", promotion="float")
def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """``log(1 + exp(beta * element)) / beta``; the element itself where `beta` times it exceeds `threshold`.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softplus(dl.tensor([-200.0, 30.0])).tolist()
        [0.0, 30.0]
    """
    scaled = input * input.dtype.type(beta)
    return select(scaled > threshold, input, np.log1p(np.exp(scaled)) / input.dtype.type(beta))


@export()
@elementwise(glsl="b * p.beta > p.threshold ? a : a * sigmoidf(b * p.beta)", promotion="float")
def softplus_backward(grad: Array, input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """The gradient of :func:`softplus`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.softplus_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    scaled = input * input.dtype.type(beta)
    return select(scaled > threshold, grad, grad * logistic(scaled))


def _softplus_backward_gradient(g: Any, grad: Any, input: Any, beta: float, threshold: float) -> Any:
    s = sigmoid(input * beta)
    return where(gt(input * beta, threshold), 0.0, g * grad * (s * (1 - s) * beta))


softplus.defgrad(lambda g, input, beta, threshold: softplus_backward(g, input, beta, threshold))
softplus_backward.defgrad(
    lambda g, input, beta, threshold: softplus_backward(g, input, beta, threshold),
    _softplus_backward_gradient,
)


@export("F")
def softsign(input: Array) -> Array:
    """``element / (1 + abs(element))``.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softsign(dl.tensor([1.0, -3.0])).tolist()
        [0.5, -0.75]
    """
    return input / (abs(input) + 1)


# Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415)

NORMAL_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
TANH_FACTOR = math.sqrt(2 / math.pi)
# In kernels 1 + tanh(t) is computed as 2 sigmoid(2t): 2t as GLSL of b, and its derivative.
TANH_ARGUMENT = "(1.59576912 * b * (1.0 + 0.044715 * b * b))"
TANH_ARGUMENT_SLOPE = "(1.59576912 * (1.0 + 0.134145 * b * b))"
# From here on gelu_tanh is x, from minus this down 0, in float64 too: polynomials may be infinite there, and
# 0 * inf is nan.
GELU_TANH_END = 40.0


# Coefficients of the polynomial in the exponent of erfc, the highest power first.
ERFC_COEFFICIENTS = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
    -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
BLOCK_SIZE = 4096  # elements whose intermediate results stay in the cache


def _erfc(x: Any) -> Any:
    """1 - erf(x) with a relative error of 1.2e-7 (Press et al., Numerical Recipes, section 6.2).

    NumPy has no erfc.
    """
    magnitude = np.abs(x)
    t = 1 / (1 + magnitude / 2)
    exponent = np.full_like(t, ERFC_COEFFICIENTS[0])
    for coefficient in ERFC_COEFFICIENTS[1:]:
        exponent *= t
        exponent += coefficient
    upper = t * np.exp(exponent - magnitude * magnitude)
    return np.where(x >= 0, upper, 2 - upper)


def _normal_cdf(x: Any) -> Any:
    """The cumulative distribution function of the normal distribution; accurate far below 0 too."""
    if x.dtype != np.float32:
        return map_elements(math.erfc, np.asarray(x * x.dtype.type(-math.sqrt(0.5)))) / 2
    flat = np.ravel(x)
    cdf = np.empty_like(flat)
    for start in range(0, flat.size, BLOCK_SIZE):
        block = slice(start, start + BLOCK_SIZE)
        cdf[block] = _erfc(flat[block].astype(np.float64) * -math.sqrt(0.5)) / 2
    return cdf.reshape(x.shape)


@export()
@elementwise(glsl="x * 0.5 * erfcf(-0.70710678 * x)", promotion="float")
def gelu_exact(input: Array) -> Array:
    """Each element times the normal distribution's cumulative distribution function: exact :func:`gelu`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_exact(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return input * _normal_cdf(input)


@export()
@elementwise(
    glsl="a * (0.5 * erfcf(-0.70710678 * b) + b * 0.39894228 * expf(-0.5 * b * b))", promotion="float"
)
def gelu_exact_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`gelu_exact`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_exact_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    density = np.exp(input * input / -2) * input.dtype.type(NORMAL_DENSITY_AT_0)
    return grad * (_normal_cdf(input) + input * density)


gelu_exact.defgrad(lambda g, input: gelu_exact_backward(g, input))
gelu_exact_backward.defgrad(
    lambda g, input: gelu_exact_backward(g, input),
    lambda g, grad, input: g * grad * (exp(input * input * -0.5) * NORMAL_DENSITY_AT_0 * (2 - input * input)),
)


def _tanh_argument(x: Any, cubic: float) -> Any:
    """``2 * TANH_FACTOR * (x + cubic * x**3)``."""
    number = x.dtype.type
    result = np.multiply(x, x, out=np.empty_like(x))
    result *= number(2 * TANH_FACTOR * cubic)
    result += number(2 * TANH_FACTOR)
    result *= x
    return result


@export()
@elementwise(glsl="x * sigmoidf(1.59576912 * x * (1.0 + 0.044715 * x * x))", promotion="float")
def gelu_tanh(input: Array) -> Array:
    """An approximation of :func:`gelu` by a hyperbolic tangent.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_tanh(dl.tensor([0.0])).tolist()
        [0.0]
    """
    result = logistic(_tanh_argument(input, 0.044715))
    result *= input
    return result


@export()
@elementwise(
    glsl=f"abs(b) > {GELU_TANH_END} ? a * (b > 0.0 ? 1.0 : 0.0) : "
    f"a * (sigmoidf({TANH_ARGUMENT}) * (1.0 + b * {TANH_ARGUMENT_SLOPE} * sigmoidf(-{TANH_ARGUMENT})))",
    promotion="float",
)
def gelu_tanh_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`gelu_tanh`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_tanh_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    derivative = _gelu_tanh_derivative(input)
    if not np.isfinite(derivative).all():  # of elements whose cubes are infinite
        derivative = _gelu_tanh_derivative(np.clip(input, -GELU_TANH_END, GELU_TANH_END))
    return grad * derivative


def _gelu_tanh_derivative(x: Any) -> Any:
    value, slope = logistic_slope(_tanh_argument(x, 0.044715))
    derivative = _tanh_argument(x, 0.134145)
    derivative *= slope
    derivative += value
    return derivative


def _gelu_tanh_backward_gradient(g: Any, grad: Any, input: Any) -> Any:
    square = input * input
    t = tanh(TANH_FACTOR * (input + square * input * 0.044715))
    slope, curvature = TANH_FACTOR * (1 + square * 0.134145), input * (TANH_FACTOR * 0.26829)
    return g * grad * ((1 - t * t) * (slope + input * 0.5 * (curvature - t * slope * slope * 2)))


gelu_tanh.defgrad(lambda g, input: gelu_tanh_backward(g, input))
gelu_tanh_backward.defgrad(lambda g, input: gelu_tanh_backward(g, input), _gelu_tanh_backward_gradient)


@export("F")
def gelu(input: TensorBase, approximate: Literal["none", "tanh"] = "none") -> Array:
    """Gaussian error linear unit: each element times the normal distribution's cumulative function.

    Args:
        input: any shape.
        approximate: ``"tanh"`` for the approximation by a hyperbolic tangent, ``"none"`` for none.

    Raises:
        ArgumentError: `approximate` is something else.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.gelu(dl.tensor([0.0, 20.0])).tolist()
        [0.0, 20.0]
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"[gelu] approximate must be 'none' or 'tanh', got {approximate!r}")
    return gelu_exact(input) if approximate == "none" else gelu_tanh(input)


@export("F")
def glu(input: TensorBase, dim: int = -1) -> Array:
    """Gated linear unit: the first half of an axis times the :func:`sigmoid` of the second half.

    Raises:
        ShapeError: the size of the axis is odd.
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.glu(dl.tensor([3.0, 0.0])).tolist()
        [1.5]
    """
    axis = strides.axis("glu", dim, len(input.shape))
    size = input.shape[axis]
    if size % 2:
        raise ShapeError(f"[glu] axis {dim} of shape {input.shape} has no halves: its size is odd")
    leading = (slice(None),) * axis
    values: Array = index(input, (*leading, slice(size // 2)))
    gates = index(input, (*leading, slice(size // 2, None)))
    return values * sigmoid(gates)
