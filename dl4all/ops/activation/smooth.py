"""Sigmoids and the activation functions that are made with them: smooth gates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.branchless import logistic, logistic_slope, select
from dl4all.ops.core.exports import export
from dl4all.ops.core.op import REGISTRY
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.comparison import gt
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import each_of, exp, tanh
from dl4all.ops.memory.views import index


@export()
@elementwise(
    glsl="a * b * (1.0 - b)",
    promotion="float",
    grad=(
        lambda g, output: REGISTRY["sigmoid_backward"](g, output),
        lambda g, grad, output: g * grad * (1 - output * 2),
    ),
)
def sigmoid_backward(grad: Array, output: Array) -> Array:
    """The gradient of :func:`sigmoid`, whose result is `output`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.sigmoid_backward(dl.tensor([4.0]), dl.tensor([0.5])).tolist()
        [1.0]
    """
    return grad * output * (1 - output)


@export("dl", "Tensor", "Tensor_", "F")
@elementwise(
    glsl="sigmoidf(x)",
    promotion="float",
    grad=lambda g, result: sigmoid_backward(g, result),
)
def sigmoid(input: Array) -> Array:
    """``1 / (1 + exp(-element))``: between 0 and 1.

    Example:
        >>> import dl4all as dl
        >>> dl.sigmoid(dl.tensor([0.0])).tolist()
        [0.5]
    """
    return logistic(input)


@export("F")
@elementwise(
    glsl="min(x, 0.0) - log1pf(expf(-abs(x)))",
    promotion="float",
    grad=lambda g, input: g * sigmoid(-input),
)
def logsigmoid(input: Array) -> Array:
    """The logarithm of :func:`sigmoid`, exact for elements far below 0, too.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.logsigmoid(dl.tensor([200.0])).tolist()
        [0.0]
    """
    return np.minimum(input, 0) - np.log1p(np.exp(-np.abs(input)))


def _silu_curvature(g: Any, grad: Any, input: Any) -> Any:
    s = sigmoid(input)
    return g * grad * (s * (1 - s) * (input * (1 - s * 2) + 2))


@export()
@elementwise(
    glsl="a * sigmoidf(b) * (1.0 + b * sigmoidf(-b))",
    promotion="float",
    grad=(lambda g, input: REGISTRY["silu_backward"](g, input), _silu_curvature),
)
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


@export("F")
@elementwise(
    glsl="x * sigmoidf(x)",
    promotion="float",
    grad=lambda g, input: silu_backward(g, input),
)
def silu(input: Array) -> Array:
    """Each element times its :func:`sigmoid`, also known as swish.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.silu(dl.tensor([0.0])).tolist()
        [0.0]
    """
    found = logistic(input)
    found *= input
    return found


@export("F")
def mish(input: TensorBase) -> Any:
    """Each element times the hyperbolic tangent of its :func:`softplus` (Misra, arXiv:1908.08681).

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.mish(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return input * tanh(softplus(input))


def _softplus_curvature(g: Any, grad: Any, input: Any, beta: float, threshold: float) -> Any:
    s = sigmoid(input * beta)
    return where(gt(input * beta, threshold), 0.0, g * grad * (s * (1 - s) * beta))


@export()
@elementwise(
    glsl="b * p.beta > p.threshold ? a : a * sigmoidf(b * p.beta)",
    promotion="float",
    grad=(
        lambda g, input, beta, threshold: REGISTRY["softplus_backward"](g, input, beta, threshold),
        _softplus_curvature,
    ),
)
def softplus_backward(grad: Array, input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """The gradient of :func:`softplus`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.softplus_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    scaled = input * input.dtype.type(beta)
    return select(scaled > threshold, grad, grad * logistic(scaled))


@export("F")
@elementwise(
    glsl="x * p.beta > p.threshold ? x : log1pf(expf(x * p.beta)) / p.beta",
    promotion="float",
    grad=lambda g, input, beta, threshold: softplus_backward(g, input, beta, threshold),
)
def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """``log(1 + exp(beta * element)) / beta``; the element itself where `beta` times it is large.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softplus(dl.tensor([-200.0, 30.0])).tolist()
        [0.0, 30.0]
    """
    scaled = input * input.dtype.type(beta)
    return select(scaled > threshold, input, np.log1p(np.exp(scaled)) / input.dtype.type(beta))


@export("F")
def softsign(input: TensorBase) -> Any:
    """``element / (1 + abs(element))``: between -1 and 1.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softsign(dl.tensor([1.0, -3.0])).tolist()
        [0.5, -0.75]
    """
    return input / (abs(input) + 1)


# Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415)

DENSITY = 1 / math.sqrt(2 * math.pi)
TANH_FACTOR = math.sqrt(2 / math.pi)
# Of b, for kernels: twice what the tanh is taken of, and its slope; 1 + tanh(x) is 2 sigmoid(2x).
INNER = "(1.59576912 * b * (1.0 + 0.044715 * b * b))"
SLOPE = "(1.59576912 * (1.0 + 0.134145 * b * b))"


# Coefficients of a polynomial, the highest power first.
ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807,
    -0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
BLOCK = 4096  # elements whose intermediate results stay in the cache


def _erfc(x: Any) -> Any:
    """1 - erf(x) to 1.2e-7 of itself (Press et al., Numerical Recipes, section 6.2); the library has none."""
    size = np.abs(x)
    t = 1 / (1 + size / 2)
    exponent = np.full_like(t, ERFC[0])
    for coefficient in ERFC[1:]:
        exponent *= t
        exponent += coefficient
    upper = t * np.exp(exponent - size * size)
    return np.where(x >= 0, upper, 2 - upper)


def _area(x: Any) -> Any:
    """How much of the normal distribution lies below x; exact far below 0, too."""
    if x.dtype != np.float32:
        return each_of(math.erfc, np.asarray(x * x.dtype.type(-math.sqrt(0.5)))) / 2
    flat = np.ravel(x)
    area = np.empty_like(flat)
    for start in range(0, flat.size, BLOCK):
        part = slice(start, start + BLOCK)
        area[part] = _erfc(flat[part].astype(np.float64) * -math.sqrt(0.5)) / 2
    return area.reshape(x.shape)


@export()
@elementwise(
    glsl="a * (0.5 * erfcf(-0.70710678 * b) + b * 0.39894228 * expf(-0.5 * b * b))",
    promotion="float",
    grad=(
        lambda g, input: REGISTRY["gelu_exact_backward"](g, input),
        lambda g, grad, input: g * grad * (exp(input * input * -0.5) * DENSITY * (2 - input * input)),
    ),
)
def gelu_exact_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`gelu_exact`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_exact_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    density = np.exp(input * input / -2) * input.dtype.type(DENSITY)
    return grad * (_area(input) + input * density)


@export()
@elementwise(
    glsl="x * 0.5 * erfcf(-0.70710678 * x)",
    promotion="float",
    grad=lambda g, input: gelu_exact_backward(g, input),
)
def gelu_exact(input: Array) -> Array:
    """Each element times the area below it under the normal distribution: :func:`gelu` as it is defined.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_exact(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return input * _area(input)


def _inner(x: Any, cubic: float) -> Any:
    """``2 * TANH_FACTOR * (x + cubic * x**3)``."""
    number = x.dtype.type
    found = np.multiply(x, x, out=np.empty_like(x))
    found *= number(2 * TANH_FACTOR * cubic)
    found += number(2 * TANH_FACTOR)
    found *= x
    return found


def _gelu_tanh_curvature(g: Any, grad: Any, input: Any) -> Any:
    square = input * input
    t = tanh(TANH_FACTOR * (input + square * input * 0.044715))
    slope, bend = TANH_FACTOR * (1 + square * 0.134145), input * (TANH_FACTOR * 0.26829)
    return g * grad * ((1 - t * t) * (slope + input * 0.5 * (bend - t * slope * slope * 2)))


@export()
@elementwise(
    glsl=f"a * (sigmoidf({INNER}) * (1.0 + b * {SLOPE} * sigmoidf(-{INNER})))",
    promotion="float",
    grad=(lambda g, input: REGISTRY["gelu_tanh_backward"](g, input), _gelu_tanh_curvature),
)
def gelu_tanh_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`gelu_tanh`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_tanh_backward(dl.tensor([4.0]), dl.tensor([0.0])).tolist()
        [2.0]
    """
    value, slope = logistic_slope(_inner(input, 0.044715))
    found = _inner(input, 0.134145)
    found *= slope
    found += value
    return grad * found


@export()
@elementwise(
    glsl="x * sigmoidf(1.59576912 * x * (1.0 + 0.044715 * x * x))",
    promotion="float",
    grad=lambda g, input: gelu_tanh_backward(g, input),
)
def gelu_tanh(input: Array) -> Array:
    """An approximation of :func:`gelu` by a hyperbolic tangent.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.gelu_tanh(dl.tensor([0.0])).tolist()
        [0.0]
    """
    found = logistic(_inner(input, 0.044715))
    found *= input
    return found


@export("F")
def gelu(input: TensorBase, approximate: str = "none") -> Any:
    """Gaussian error linear unit: each element times the area below it under the normal distribution.

    Args:
        input: any shape.
        approximate: ``"tanh"`` for the approximation by a hyperbolic tangent, else ``"none"``.

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
def glu(input: TensorBase, dim: int = -1) -> Any:
    """The first half of the elements along an axis times the :func:`sigmoid` of the second.

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
    front = (slice(None),) * axis
    first, second = index(input, (*front, slice(size // 2))), index(input, (*front, slice(size // 2, None)))
    return first * sigmoid(second)
