"""The elementwise terms of losses and their gradients, each in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions.branchless import logistic
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import neg
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs

# As in PyTorch: a certain and wrong prediction costs 100 instead of infinity.
MIN_LOG = -100.0
MIN_VARIANCE = 1e-12
# In GLSL, the share of the target that is not the class for which the logit speaks. It may be 0, and 0 * inf
# is nan.
WRONG = "(a < 0.0 ? b : 1.0 - b)"
PROBABILITY_DOMAIN = {"input": (0.1, 0.9), "target": (0.0, 1.0)}


@export()
@elementwise(glsl="(a - b) * (a - b)", promotion="float")
def squared_error(input: Array, target: Array) -> Array:
    """The square of each difference.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.squared_error(dl.tensor([3.0]), 1.0).tolist()
        [4.0]
    """
    difference = input - target
    return difference * difference


@export()
@elementwise(glsl="2.0 * a * (b - c)", promotion="float")
def squared_error_backward(grad: Array, input: Array, target: Array) -> Array:
    """The gradient of :func:`squared_error` for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.squared_error_backward(dl.tensor([1.0]), dl.tensor([3.0]), 1.0).tolist()
        [4.0]
    """
    return 2 * grad * (input - target)


squared_error.defgrad(
    lambda g, input, target: squared_error_backward(g, input, target),
    lambda g, input, target: squared_error_backward(g, target, input),
)
squared_error_backward.defgrad(
    lambda g, input, target: squared_error_backward(g, input, target),
    lambda g, grad: g * grad * 2.0,
    lambda g, grad: g * grad * -2.0,
)


@export()
@elementwise(
    glsl="abs(a - b) < p.beta ? 0.5 * (a - b) * (a - b) / p.beta : abs(a - b) - 0.5 * p.beta",
    promotion="float",
)
def smooth_error(input: Array, target: Array, beta: float = 1.0) -> Array:
    """The smooth L1 loss: each absolute difference less ``beta / 2``; below `beta`, a parabola that joins it.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.smooth_error(dl.tensor([0.5, 4.0]), 0.0).tolist()
        [0.125, 3.5]
    """
    size = np.abs(input - target)
    return np.where(size < beta, size * size / np.asarray(2 * beta, size.dtype), size - beta / 2)


@export()
@elementwise(glsl="a * smaller(larger((b - c) / p.beta, -1.0), 1.0)", promotion="float")
def smooth_error_backward(grad: Array, input: Array, target: Array, beta: float = 1.0) -> Array:
    """The gradient of :func:`smooth_error` for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.smooth_error_backward(dl.tensor([2.0, 2.0]), dl.tensor([0.25, 4.0]), 0.0).tolist()
        [0.5, 2.0]
    """
    return grad * np.clip((input - target) / np.asarray(beta, input.dtype), -1, 1)


def _smooth_error_backward_gradient(g: Any, grad: Any, input: Any, target: Any, beta: float) -> Any:
    return where(abs(input - target) < beta, g * grad * (1 / beta), 0.0)


smooth_error.defgrad(
    lambda g, input, target, beta: smooth_error_backward(g, input, target, beta=beta),
    lambda g, input, target, beta: smooth_error_backward(g, target, input, beta=beta),
)
smooth_error_backward.defgrad(
    lambda g, input, target, beta: smooth_error_backward(g, input, target, beta=beta),
    _smooth_error_backward_gradient,
    lambda g, grad, input, target, beta: neg(_smooth_error_backward_gradient(g, grad, input, target, beta)),
)


@export()
@elementwise(
    glsl=f"({WRONG} == 0.0 ? 0.0 : abs(a) * {WRONG}) + log1pf(expf(-abs(a)))",
    promotion="float",
)
def logistic_error(input: Array, target: Array) -> Array:
    """The binary cross entropy of the probabilities ``sigmoid(input)``, without computing them.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.logistic_error(dl.tensor([-10000.0, 10000.0]), 1.0).tolist()
        [10000.0, 0.0]
    """
    size = np.abs(input)
    rest = np.log1p(np.exp(-size))
    result = np.maximum(input, 0) - input * target + rest
    if np.isfinite(result).all():  # NumPy's where takes longer than all the rest
        return result
    wrong = np.where(input < 0, target, 1 - target)
    return np.where(wrong == 0, 0, size * wrong) + rest


@export()
@elementwise(glsl="a * (sigmoidf(b) - c)", promotion="float")
def logistic_error_backward(grad: Array, input: Array, target: Array) -> Array:
    """The gradient of :func:`logistic_error` for `input`: the difference of probability and target.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.logistic_error_backward(dl.tensor([2.0]), dl.tensor([0.0]), 1.0).tolist()
        [-1.0]
    """
    return grad * (logistic(input) - target)


def _logistic_error_backward_gradient(g: Any, grad: Any, input: Any) -> Any:
    # sigmoid(input) * (1 - sigmoid(input)); the factors are the gradients for the targets 0 and 1.
    return logistic_error_backward(g * grad, input, 0.0) * logistic_error_backward(-1.0, input, 1.0)


logistic_error.defgrad(
    lambda g, input, target: logistic_error_backward(g, input, target), lambda g, input: neg(g * input)
)
logistic_error_backward.defgrad(
    lambda g, input, target: logistic_error_backward(g, input, target),
    _logistic_error_backward_gradient,
    lambda g, grad: neg(g * grad),
)


@export()
@elementwise(
    glsl=f"-(b * larger(logf(a), {MIN_LOG}) + (1.0 - b) * larger(log1pf(-a), {MIN_LOG}))",
    promotion="float",
    domain=PROBABILITY_DOMAIN,
)
def binary_error(input: Array, target: Array) -> Array:
    """The binary cross entropy of probabilities, whose logarithms are clamped at -100.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.binary_error(dl.tensor([0.0, 1.0]), 0.5).tolist()
        [50.0, 50.0]
    """
    log_one, log_zero = (np.maximum(log, MIN_LOG) for log in (np.log(input), np.log1p(-input)))
    return -(target * log_one + (1 - target) * log_zero)


@export()
@elementwise(
    glsl=f"a * (b - c) / larger(b * (1.0 - b), {MIN_VARIANCE})",
    promotion="float",
    domain=PROBABILITY_DOMAIN,
)
def binary_error_backward(grad: Array, input: Array, target: Array) -> Array:
    """The gradient of :func:`binary_error` for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.binary_error_backward(dl.tensor([1.0]), dl.tensor([0.5]), 1.0).tolist()
        [-2.0]
    """
    return grad * (input - target) / np.maximum(input * (1 - input), np.asarray(MIN_VARIANCE, input.dtype))


def _binary_error_backward_gradient(g: Any, grad: Any, input: Any, target: Any) -> Any:
    variance = clamp_min(input * (1.0 - input), MIN_VARIANCE)
    return g * grad * (1.0 - (input - target) * (1.0 - input * 2.0) / variance) / variance


def _binary_error_target_gradient(g: Any, input: Any) -> Any:
    """The loss is linear in the target: its slope is the difference of the losses for the targets 1 and 0."""
    return g * (binary_error(input, 1.0) - binary_error(input, 0.0))


binary_error.defgrad(
    lambda g, input, target: binary_error_backward(g, input, target), _binary_error_target_gradient
)
binary_error_backward.defgrad(
    lambda g, input, target: binary_error_backward(g, input, target),
    _binary_error_backward_gradient,
    lambda g, grad, input: neg(g * grad / clamp_min(input * (1.0 - input), MIN_VARIANCE)),
)
