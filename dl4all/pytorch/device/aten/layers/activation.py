"""Activations and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.ops.core.dtypes import kind_of
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative


def elu(input: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return ops.elu(input, alpha, scale=scale, input_scale=input_scale)


def elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, value: Any) -> Any:
    """The gradient of ELU from its input, or from its result."""
    if is_result and alpha < 0:
        raise NotNative("the result says nothing about the input where alpha is negative")
    return (ops.elu_output_backward if is_result else ops.elu_backward)(
        grad, value, alpha, scale, input_scale
    )


def gelu(input: Any, *, approximate: Any = "none") -> Any:
    return ops.gelu(input, approximate)


def gelu_backward(grad: Any, input: Any, *, approximate: Any = "none") -> Any:
    backward = ops.gelu_exact_backward if approximate == "none" else ops.gelu_tanh_backward
    return backward(grad, input)


def leaky_relu_backward(grad: Any, input: Any, negative_slope: Any, is_result: bool) -> Any:
    if is_result and negative_slope < 0:
        raise NotNative("the result says nothing about the input where the slope is negative")
    return ops.leaky_relu_backward(grad, input, negative_slope)


def celu(input: Any, alpha: Any = 1.0) -> Any:
    return ops.celu(input, alpha)


def mish(input: Any) -> Any:
    return ops.mish(input)


def mish_backward(grad: Any, input: Any) -> Any:
    t, s = ops.tanh(ops.softplus(input)), ops.sigmoid(input)
    return ops.mul(grad, ops.addcmul(t, ops.mul(input, s), ops.sub(1.0, ops.mul(t, t))))


def threshold(input: Any, threshold: Any, value: Any) -> Any:
    return ops.where(ops.le(input, threshold), value, input)


def threshold_backward(grad: Any, input: Any, threshold: Any) -> Any:
    """The gradient where the input, or the result of ReLU, is above the threshold."""
    if threshold == 0 and kind_of(grad.dtype) == "f":
        return ops.relu_backward(grad, input)
    return ops.where(ops.le(input, threshold), 0, grad)


def shrink_backward(grad: Any, input: Any, lambd: Any = 0.5) -> Any:
    """The gradient where the input lies outside of ``-lambd`` to `lambd`."""
    return ops.where(ops.in_range(input, -lambd, lambd), 0.0, grad)


def hardtanh(input: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    """The elements clamped, integers to integers."""
    if kind_of(input.dtype) == "f":
        return ops.hardtanh(input, min_val, max_val)
    return ops.clamp(input, int(min_val), int(max_val))


def hardsigmoid(input: Any) -> Any:
    return ops.hardsigmoid(input)


def softshrink(input: Any, lambd: Any = 0.5) -> Any:
    return ops.softshrink(input, lambd)


def log_sigmoid_forward(input: Any) -> Any:
    """The result, and an empty buffer, which ATen's kernels for devices do not fill either."""
    return ops.logsigmoid(input), ops.getitem(ops.reshape(input, (-1,)), slice(0, 0))


def log_sigmoid_backward(grad: Any, input: Any, buffer: Any) -> Any:
    return ops.mul(grad, ops.sigmoid(ops.neg(input)))


def prelu(input: Any, weight: Any) -> Any:
    return ops.where(ops.gt(input, 0), input, ops.mul(input, weight))


def prelu_backward(grad: Any, input: Any, weight: Any) -> Any:
    """The gradients of PReLU; that of the weight has the shape of the input."""
    positive = ops.gt(input, 0)
    return ops.where(positive, grad, ops.mul(grad, weight)), ops.where(positive, 0.0, ops.mul(grad, input))


def glu(input: Any, dim: int = -1) -> Any:
    return ops.glu(input, dim)


def glu_backward(grad: Any, input: Any, dim: int) -> Any:
    """The gradients of both halves, one behind the other along the axis."""
    axis = dim % len(input.shape)
    half = input.shape[axis] // 2
    before = (slice(None),) * axis
    values, gates = ops.index(input, (*before, slice(half))), ops.index(input, (*before, slice(half, None)))
    gate = ops.sigmoid(gates)
    return ops.cat(
        [ops.mul(grad, gate), ops.mul(grad, ops.mul(values, ops.mul(gate, ops.sub(1.0, gate))))], axis
    )


POINTWISE: dict[str, Callable[..., Any]] = {
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
    "sigmoid_backward": ops.sigmoid_backward,
    "elu": elu,
    "elu_backward": elu_backward,
    "celu": celu,
    "gelu": gelu,
    "gelu_backward": gelu_backward,
    "silu": ops.silu,
    "silu_backward": ops.silu_backward,
    "mish": mish,
    "mish_backward": mish_backward,
    "leaky_relu": ops.leaky_relu,
    "leaky_relu_backward": leaky_relu_backward,
    "hardtanh": hardtanh,
    "hardtanh_backward": ops.hardtanh_backward,
    "hardswish": ops.hardswish,
    "hardswish_backward": ops.hardswish_backward,
    "hardsigmoid": hardsigmoid,
    "hardsigmoid_backward": ops.hardsigmoid_backward,
    "threshold": threshold,
    "threshold_backward": threshold_backward,
    "softplus": ops.softplus,
    "softplus_backward": ops.softplus_backward,
    "softshrink": softshrink,
    "softshrink_backward": shrink_backward,
    "hardshrink": ops.hardshrink,
    "hardshrink_backward": shrink_backward,
    "_prelu_kernel": prelu,
}

OF_WHOLE_TENSORS: dict[str, Callable[..., Any]] = {
    "glu": glu,
    "glu_backward": glu_backward,
    "log_sigmoid_forward": log_sigmoid_forward,
    "log_sigmoid_backward": log_sigmoid_backward,
    "_prelu_kernel_backward": prelu_backward,
}

for _name, _function in POINTWISE.items():
    declare(_name, _function, pointwise=True)
for _name, _function in OF_WHOLE_TENSORS.items():
    declare(_name, _function)
