"""What losses compute for each pair of elements, and the gradients of that, in one kernel each."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.branchless import logistic
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import neg
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs

LEAST_LOG = -100.0  # PyTorch's: a certain and wrong prediction costs this much instead of infinity
LEAST_VARIANCE = 1e-12


def _squared_gradient(g: Any, input: Any, target: Any) -> Any:
    return squared_error_backward(g, input, target)


@export()
@elementwise(
    glsl="2.0 * a * (b - c)",
    promotion="float",
    grad=(
        _squared_gradient,
        lambda g, grad: g * grad * 2.0,
        lambda g, grad: g * grad * -2.0,
    ),
)
def squared_error_backward(grad: Array, input: Array, target: Array) -> Array:
    """The gradient of :func:`squared_error` for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.squared_error_backward(dl.tensor([1.0]), dl.tensor([3.0]), 1.0).tolist()
        [4.0]
    """
    return 2 * grad * (input - target)


@export()
@elementwise(
    glsl="(a - b) * (a - b)",
    promotion="float",
    grad=(
        _squared_gradient,
        lambda g, input, target: squared_error_backward(g, target, input),
    ),
)
def squared_error(input: Array, target: Array) -> Array:
    """The square of each difference.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.squared_error(dl.tensor([3.0]), 1.0).tolist()
        [4.0]
    """
    difference = input - target
    return difference * difference


def _inside(g: Any, grad: Any, input: Any, target: Any, beta: float) -> Any:
    return where(abs(input - target) < beta, g * grad * (1 / beta), 0.0)


def _smooth_gradient(g: Any, input: Any, target: Any, beta: float) -> Any:
    return smooth_error_backward(g, input, target, beta=beta)


@export()
@elementwise(
    glsl="a * smaller(larger((b - c) / p.beta, -1.0), 1.0)",
    promotion="float",
    grad=(
        _smooth_gradient,
        _inside,
        lambda g, grad, input, target, beta: neg(_inside(g, grad, input, target, beta)),
    ),
)
def smooth_error_backward(grad: Array, input: Array, target: Array, beta: float = 1.0) -> Array:
    """The gradient of :func:`smooth_error` for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.smooth_error_backward(dl.tensor([2.0, 2.0]), dl.tensor([0.25, 4.0]), 0.0).tolist()
        [0.5, 2.0]
    """
    return grad * np.clip((input - target) / np.asarray(beta, input.dtype), -1, 1)


@export()
@elementwise(
    glsl="abs(a - b) < p.beta ? 0.5 * (a - b) * (a - b) / p.beta : abs(a - b) - 0.5 * p.beta",
    promotion="float",
    grad=(
        _smooth_gradient,
        lambda g, input, target, beta: smooth_error_backward(g, target, input, beta=beta),
    ),
)
def smooth_error(input: Array, target: Array, beta: float = 1.0) -> Array:
    """The size of each difference less ``beta / 2``; below `beta` a parabola that fits.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.smooth_error(dl.tensor([0.5, 4.0]), 0.0).tolist()
        [0.125, 3.5]
    """
    size = np.abs(input - target)
    return np.where(size < beta, size * size / np.asarray(2 * beta, size.dtype), size - beta / 2)


def _logistic_slope(g: Any, grad: Any, input: Any) -> Any:
    # sigmoid and what it lacks to 1, as logistic_error_backward has them for targets 0 and 1
    return logistic_error_backward(g * grad, input, 0.0) * logistic_error_backward(-1.0, input, 1.0)


def _logistic_gradient(g: Any, input: Any, target: Any) -> Any:
    return logistic_error_backward(g, input, target)


@export()
@elementwise(
    glsl="a * (sigmoidf(b) - c)",
    promotion="float",
    grad=(
        _logistic_gradient,
        _logistic_slope,
        lambda g, grad: neg(g * grad),
    ),
)
def logistic_error_backward(grad: Array, input: Array, target: Array) -> Array:
    """The gradient of :func:`logistic_error` for `input`: the distance of probability and target.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.logistic_error_backward(dl.tensor([2.0]), dl.tensor([0.0]), 1.0).tolist()
        [-1.0]
    """
    return grad * (logistic(input) - target)


@export()
@elementwise(
    glsl="larger(a, 0.0) - a * b + log1pf(expf(-abs(a)))",
    promotion="float",
    grad=(
        _logistic_gradient,
        lambda g, input: neg(g * input),
    ),
)
def logistic_error(input: Array, target: Array) -> Array:
    """The binary cross entropy of probabilities ``sigmoid(input)``, which are never computed.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.logistic_error(dl.tensor([-10000.0, 10000.0]), 1.0).tolist()
        [10000.0, 0.0]
    """
    return np.maximum(input, 0) - input * target + np.log1p(np.exp(-np.abs(input)))


PROBABILITIES = {"input": (0.1, 0.9), "target": (0.0, 1.0)}


def _binary_slope(g: Any, grad: Any, input: Any, target: Any) -> Any:
    variance = clamp_min(input * (1.0 - input), LEAST_VARIANCE)
    return g * grad * (1.0 - (input - target) * (1.0 - input * 2.0) / variance) / variance


def _binary_gradient(g: Any, input: Any, target: Any) -> Any:
    return binary_error_backward(g, input, target)


@export()
@elementwise(
    glsl=f"a * (b - c) / larger(b * (1.0 - b), {LEAST_VARIANCE})",
    promotion="float",
    domain=PROBABILITIES,
    grad=(
        _binary_gradient,
        _binary_slope,
        lambda g, grad, input: neg(g * grad / clamp_min(input * (1.0 - input), LEAST_VARIANCE)),
    ),
)
def binary_error_backward(grad: Array, input: Array, target: Array) -> Array:
    """The gradient of :func:`binary_error` for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.binary_error_backward(dl.tensor([1.0]), dl.tensor([0.5]), 1.0).tolist()
        [-2.0]
    """
    return grad * (input - target) / np.maximum(input * (1 - input), np.asarray(LEAST_VARIANCE, input.dtype))


def _of_target(g: Any, input: Any) -> Any:
    """The loss is linear in the target: its slope is what 1 costs more than 0."""
    return g * (binary_error(input, 1.0) - binary_error(input, 0.0))


@export()
@elementwise(
    glsl=f"-(b * larger(logf(a), {LEAST_LOG}) + (1.0 - b) * larger(log1pf(-a), {LEAST_LOG}))",
    promotion="float",
    domain=PROBABILITIES,
    grad=(_binary_gradient, _of_target),
)
def binary_error(input: Array, target: Array) -> Array:
    """The binary cross entropy of probabilities; their logarithms are no less than -100.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.binary_error(dl.tensor([0.0, 1.0]), 0.5).tolist()
        [50.0, 50.0]
    """
    of_one, of_zero = (np.maximum(f, LEAST_LOG) for f in (np.log(input), np.log1p(-input)))
    return -(target * of_one + (1 - target) * of_zero)
