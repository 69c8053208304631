"""Activation functions that are defined piecewise, such as ReLU, ELU and hard sigmoid."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions.branchless import clamp_negative, keep_where, select
from dl4all.ops.core.op import primitives
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.elementwise.comparison import gt, le
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.logic import where
from dl4all.ops.memory.views import reshape


# max(x, 0.0) would turn nan into 0 on some drivers; a comparison with nan is false everywhere.
@export("dl", "Tensor", "Tensor_", "F", "F_")
@elementwise(
    glsl={
        "float32": "x < 0.0 ? 0.0 : x",
        "int32": "max(x, 0)",
        "int64": "larger(x, widened(0))",
        "uint8": "x",
    }
)
def relu(input: Array, inplace: bool = False) -> Array:
    """Rectified linear unit: each element where it is positive, 0 elsewhere; nan stays nan.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.relu(dl.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    return clamp_negative(input)


@export()
@elementwise(glsl="b <= 0.0 ? 0.0 : a", promotion="float")
def relu_backward(grad: Array, output: Array) -> Array:
    """The gradient of :func:`relu`: `grad` where `output`, the result, is positive, 0 elsewhere.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.relu_backward(dl.tensor([5.0, 5.0]), dl.tensor([0.0, 2.0])).tolist()
        [0.0, 5.0]
    """
    return keep_where(grad, ~(output <= 0))


relu.defgrad(lambda g, result: relu_backward(g, result))
relu_backward.defgrad(lambda g, output: relu_backward(g, output), None)


@export("F", "F_")
@elementwise(glsl="x > 0.0 ? x : x * p.negative_slope", promotion="float")
def leaky_relu(input: Array, negative_slope: float = 0.01, inplace: bool = False) -> Array:
    """Each element where it is positive, `negative_slope` times it elsewhere.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.leaky_relu(dl.tensor([-1.0, 2.0]), 0.5).tolist()
        [-0.5, 2.0]
    """
    return select(input > 0, input, input * input.dtype.type(negative_slope))


@export()
@elementwise(glsl="b > 0.0 ? a : a * p.negative_slope", promotion="float")
def leaky_relu_backward(grad: Array, input: Array, negative_slope: float = 0.01) -> Array:
    """The gradient of :func:`leaky_relu`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.leaky_relu_backward(dl.tensor([2.0, 2.0]), dl.tensor([1.0, -1.0]), 0.5).tolist()
        [2.0, 1.0]
    """
    return select(input > 0, grad, grad * grad.dtype.type(negative_slope))


leaky_relu.defgrad(lambda g, input, negative_slope: leaky_relu_backward(g, input, negative_slope))
# The result has the sign of the input, unless the slope is negative.
leaky_relu.define_result_gradient(
    lambda g, result, negative_slope: leaky_relu_backward(g, result, negative_slope),
    holds=lambda negative_slope: negative_slope >= 0,
)
leaky_relu_backward.defgrad(
    lambda g, input, negative_slope: leaky_relu_backward(g, input, negative_slope), None
)


@export("F", "F_")
@elementwise(glsl="x > 0.0 ? x * p.scale : p.alpha * p.scale * expm1f(x * p.input_scale)", promotion="float")
def elu(
    input: Array, alpha: float = 1.0, inplace: bool = False, *, scale: float = 1.0, input_scale: float = 1.0
) -> Array:
    """Exponential linear unit: each element where it is positive, ``alpha * (exp(element) - 1)`` elsewhere.

    `scale` multiplies all results, `input_scale` the elements that are not positive. `inplace` writes the
    result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.elu(dl.tensor([0.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    number = input.dtype.type
    negative = np.expm1(np.minimum(input, 0) * number(input_scale)) * number(alpha * scale)
    return select(input > 0, input * number(scale), negative)


@export()
@elementwise(
    glsl="b > 0.0 ? a * p.scale : a * (p.alpha * p.scale * p.input_scale * expf(b * p.input_scale))",
    promotion="float",
)
def elu_backward(
    grad: Array, input: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Array:
    """The gradient of :func:`elu`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.elu_backward(dl.tensor([2.0, 2.0]), dl.tensor([1.0, 0.0]), 0.5).tolist()
        [2.0, 1.0]
    """
    slope = np.exp(np.minimum(input, 0) * grad.dtype.type(input_scale))
    factor = grad.dtype.type(alpha * scale * input_scale)
    return select(input > 0, grad * grad.dtype.type(scale), grad * factor * slope)


@export()
@elementwise(
    glsl="b > 0.0 ? a * p.scale : a * ((b + p.alpha * p.scale) * p.input_scale)",
    promotion="float",
)
def elu_output_backward(
    grad: Array, output: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Array:
    """The gradient of :func:`elu` from `output`, its result, where `alpha` and the scales are not negative.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.elu_output_backward(dl.tensor([2.0, 2.0]), dl.tensor([1.0, -0.25]), 0.5).tolist()
        [2.0, 0.5]
    """
    number = grad.dtype.type
    slope = (output + number(alpha * scale)) * number(input_scale)
    return select(output > 0, grad * number(scale), grad * slope)


def _elu_backward_gradient(g: Any, grad: Any, input: Any, result: Any, input_scale: float) -> Any:
    return g * where(gt(input, 0), 0.0, result * input_scale)


def _elu_output_backward_gradient(g: Any, grad: Any, output: Any, input_scale: float) -> Any:
    return g * where(gt(output, 0), 0.0, grad * input_scale)


elu.defgrad(lambda g, input, alpha, scale, input_scale: elu_backward(g, input, alpha, scale, input_scale))
elu.define_result_gradient(
    lambda g, result, alpha, scale, input_scale: elu_output_backward(g, result, alpha, scale, input_scale),
    holds=lambda alpha, scale, input_scale: min(alpha, scale, input_scale) >= 0,
)
elu_output_backward.defgrad(
    lambda g, output, alpha, scale, input_scale: elu_output_backward(g, output, alpha, scale, input_scale),
    _elu_output_backward_gradient,
)
elu_backward.defgrad(
    lambda g, input, alpha, scale, input_scale: elu_backward(g, input, alpha, scale, input_scale),
    _elu_backward_gradient,
)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@export("dl", "F", "F_")
def selu(input: TensorBase, inplace: bool = False) -> Array:
    """Scaled exponential linear unit, which keeps mean 0 and variance 1 (Klambauer et al., arXiv:1706.02515).

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.selu(dl.tensor([0.0])).tolist()
        [0.0]
    """
    return elu(input, SELU_ALPHA, inplace, scale=SELU_SCALE)


@export("dl", "F", "F_")
def celu(input: TensorBase, alpha: float = 1.0, inplace: bool = False) -> Array:
    """Continuously differentiable exponential linear unit (Barron, arXiv:1704.07483).

    Each element where it is positive, ``alpha * (exp(element / alpha) - 1)`` elsewhere. `inplace` writes the
    result into the input, which it returns.

    Raises:
        ArgumentError: alpha is 0.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.celu(dl.tensor([0.0, 2.0]), 0.5).tolist()
        [0.0, 2.0]
    """
    if alpha == 0:
        raise ArgumentError("[celu] alpha must not be 0")
    return elu(input, alpha, inplace, input_scale=1 / alpha)


# Piecewise linear functions


@export("F", "F_")
@elementwise(
    glsl={
        "float32": "smaller(larger(x, p.min_val), p.max_val)",
        **dict.fromkeys(("int32", "uint8"), "min(max(x, int(p.min_val)), int(p.max_val))"),
        "int64": "smaller(larger(x, widened(int(p.min_val))), widened(int(p.max_val)))",
    },
    kinds="iuf",
)
def hardtanh(input: Array, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Array:
    """The elements, clamped to the interval from `min_val` to `max_val`, of integers without fractions.

    `inplace` writes the result into the input, which it returns.

    Raises:
        ArgumentError: integers of the input's dtype cannot be as low or as high as a limit.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.hardtanh(dl.tensor([-2.0, 0.5, 2.0])).tolist()
        [-1.0, 0.5, 1.0]
    """
    number = input.dtype.type
    low, high = (min_val, max_val) if kind_of(input.dtype) == "f" else (int(min_val), int(max_val))
    return np.minimum(np.maximum(input, number(low)), number(high))


@export()
@elementwise(glsl="b <= p.min_val || b >= p.max_val ? 0.0 : a", promotion="float")
def hardtanh_backward(grad: Array, input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """The gradient of :func:`hardtanh`: `grad` where `input` lies between the limits.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.hardtanh_backward(dl.tensor([4.0, 4.0]), dl.tensor([0.0, 2.0])).tolist()
        [4.0, 0.0]
    """
    return keep_where(grad, ~((input <= min_val) | (input >= max_val)))


hardtanh.defgrad(lambda g, input, min_val, max_val: hardtanh_backward(g, input, min_val, max_val))
hardtanh.define_result_gradient(  # the result lies on a limit where the input was there or beyond
    lambda g, result, min_val, max_val: hardtanh_backward(g, result, min_val, max_val),
    holds=lambda min_val, max_val: True,
)
hardtanh_backward.defgrad(
    lambda g, input, min_val, max_val: hardtanh_backward(g, input, min_val, max_val), None
)


@export("F")
def relu6(input: TensorBase, inplace: bool = False) -> Array:
    """The elements, clamped to the interval from 0 to 6.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.relu6(dl.tensor([-1.0, 2.0, 8.0])).tolist()
        [0.0, 2.0, 6.0]
    """
    return hardtanh(input, 0.0, 6.0, inplace)


@export("F")
@elementwise(glsl="smaller(larger(x + 3.0, 0.0), 6.0) / 6.0", promotion="float")
def hardsigmoid(input: Array, inplace: bool = False) -> Array:
    """``(element + 3) / 6``, clamped to the interval from 0 to 1.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.hardsigmoid(dl.tensor([-4.0, 0.0, 4.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    return np.minimum(np.maximum(input + 3, np.zeros((), input.dtype)), input.dtype.type(6)) / 6


@export()
@elementwise(glsl="b > -3.0 && b < 3.0 ? a / 6.0 : 0.0", promotion="float")
def hardsigmoid_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`hardsigmoid`: a sixth of `grad` where `input` lies between -3 and 3.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.hardsigmoid_backward(dl.tensor([3.0, 3.0]), dl.tensor([0.0, 4.0])).tolist()
        [0.5, 0.0]
    """
    return keep_where(grad / 6, (input > -3) & (input < 3))


hardsigmoid.defgrad(lambda g, input: hardsigmoid_backward(g, input))
hardsigmoid_backward.defgrad(lambda g, input: hardsigmoid_backward(g, input), None)


@export("F")
@elementwise(glsl="x * smaller(larger(x + 3.0, 0.0), 6.0) / 6.0", promotion="float")
def hardswish(input: Array, inplace: bool = False) -> Array:
    """Each element times its :func:`hardsigmoid`.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.hardswish(dl.tensor([-4.0, 0.0, 4.0])).tolist()
        [-0.0, 0.0, 4.0]
    """
    return input * np.minimum(np.maximum(input + 3, np.zeros((), input.dtype)), input.dtype.type(6)) / 6


@export()
@elementwise(glsl="b <= -3.0 ? 0.0 : b < 3.0 ? a * (b / 3.0 + 0.5) : a", promotion="float")
def hardswish_backward(grad: Array, input: Array) -> Array:
    """The gradient of :func:`hardswish`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.hardswish_backward(dl.tensor([4.0, 4.0]), dl.tensor([0.0, 4.0])).tolist()
        [2.0, 4.0]
    """
    above = select(input < 3, grad * (input / 3 + input.dtype.type(0.5)), grad)
    return keep_where(above, ~(input <= -3))


def _hardswish_backward_gradient(g: Any, grad: Any, input: Any) -> Any:
    return hardsigmoid_backward(g * grad, input) * 2


hardswish.defgrad(lambda g, input: hardswish_backward(g, input))
hardswish_backward.defgrad(lambda g, input: hardswish_backward(g, input), _hardswish_backward_gradient)


@export("F", "F_")
def threshold(input: TensorBase, threshold: float, value: float, inplace: bool = False) -> Array:
    """Each element where it is above the threshold, `value` elsewhere; nan stays nan.

    `inplace` writes the result into the input, which it returns.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.threshold(dl.tensor([0.5, 2.0]), 1.0, -1.0).tolist()
        [-1.0, 2.0]
    """
    result: Array = (primitives.in_place(_threshold) if inplace else _threshold)(input, threshold, value)
    return result


def _threshold(input: TensorBase, threshold: float, value: float) -> Array:
    return where(le(input, threshold), value, input)


@export("dl", "Tensor", "F", autocast="lower")
def prelu(input: Array, weight: TensorBase) -> Array:
    """Parametric ReLU: each element where it is positive, `weight` times it elsewhere.

    By He et al., arXiv:1502.01852.

    Args:
        input: any shape.
        weight: one number, or one for each channel; channels are axis 1 of the input.

    Raises:
        ShapeError: the numbers of weights and channels differ.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.prelu(dl.tensor([[-1.0, -1.0]]), dl.tensor([0.5, 0.25])).tolist()
        [[-0.5, -0.25]]
    """
    shape = input.shape
    channels = shape[1] if len(shape) > 1 else 1
    if len(weight.shape) > 1 or weight.numel() not in (1, channels):
        raise ShapeError(
            f"[prelu] expected a weight of shape (1,) or ({channels},) for an input of shape {shape}, "
            f"got {weight.shape}"
        )
    broadcastable = (-1, *(1,) * (len(shape) - 2)) if weight.numel() > 1 else ()
    return where(gt(input, 0), input, input * reshape(weight, broadcastable))
