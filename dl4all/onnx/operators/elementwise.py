"""Operators that compute element by element."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.dtypes import element_dtype, held, limits, supported
from dl4all.onnx.registry import SAME, operator
from dl4all.ops.core.dtypes import FLOAT8, FLOAT8_E4M3FN, finfo, kind_of
from dl4all.tensor.creation import ones_like, zeros_like

UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    "Abs": (functions.abs, np.abs),
    "Acos": (functions.acos, None),
    "Acosh": (functions.acosh, None),
    "Asin": (functions.asin, None),
    "Asinh": (functions.asinh, None),
    "Atan": (functions.atan, None),
    "Atanh": (functions.atanh, None),
    "BitwiseNot": (functions.bitwise_not, np.invert),
    "Ceil": (functions.ceil, np.ceil),
    "Cos": (functions.cos, None),
    "Cosh": (functions.cosh, None),
    "Det": (functions.det, None),
    "Erf": (functions.erf, None),
    "Exp": (functions.exp, np.exp),
    "Floor": (functions.floor, np.floor),
    "HardSwish": (F.hardswish, None),
    "IsNaN": (functions.isnan, np.isnan),
    "Log": (functions.log, np.log),
    "Mish": (F.mish, None),
    "Neg": (functions.neg, np.negative),
    "Not": (functions.logical_not, np.logical_not),
    "Reciprocal": (functions.reciprocal, np.reciprocal),
    "Relu": (functions.relu, None),
    "Round": (functions.round, np.rint),
    "Sigmoid": (functions.sigmoid, None),
    "Sign": (functions.sign, np.sign),
    "Sin": (functions.sin, None),
    "Sinh": (functions.sinh, None),
    "Softplus": (F.softplus, None),
    "Softsign": (F.softsign, None),
    "Sqrt": (functions.sqrt, np.sqrt),
    "Tan": (functions.tan, None),
    "Tanh": (functions.tanh, None),
}
"""Operators of one input: on a device, and on the host where sizes are computed so."""

ARITHMETIC: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "Add": (python.add, np.add),
    "Sub": (python.sub, np.subtract),
    "Mul": (python.mul, np.multiply),
    "Greater": (python.gt, np.greater),
    "GreaterOrEqual": (python.ge, np.greater_equal),
    "Less": (python.lt, np.less),
    "LessOrEqual": (python.le, np.less_equal),
    "Equal": (functions.eq, np.equal),
}
"""Operators of two inputs, one of which may be a number of Python's."""

LOGICAL: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "And": (functions.logical_and, np.logical_and),
    "Or": (functions.logical_or, np.logical_or),
    "Xor": (functions.logical_xor, np.logical_xor),
    "BitwiseAnd": (functions.bitwise_and, np.bitwise_and),
    "BitwiseOr": (functions.bitwise_or, np.bitwise_or),
    "BitwiseXor": (functions.bitwise_xor, np.bitwise_xor),
}


def _declare_unary(name: str, function: Callable[[Any], Any], numpy: Callable[[Any], Any] | None) -> None:
    on_host = None if numpy is None else lambda call, x: np.asarray(numpy(x), _result(x, numpy))
    operator(name, on_host=on_host)(lambda call, x: function(call.tensor(x)))


def _result(x: Any, numpy: Callable[[Any], Any]) -> Any:
    return bool if numpy in (np.isnan, np.logical_not) else x.dtype


def _declare_binary(
    name: str, function: Callable[[Any, Any], Any], numpy: Callable[[Any, Any], Any], *, numbers: bool
) -> None:
    def compute(call: Call, x: Any, y: Any) -> Any:
        return function(*(call.operands(x, y) if numbers else call.tensors(x, y)))

    operator(name, since=7, on_host=lambda call, x, y: np.asarray(numpy(x, y)))(compute)
    operator(name, until=6)(lambda call, x, y: compute(call, x, _at_axis(call, x, y)))


def _at_axis(call: Call, x: Any, y: Any) -> Any:
    """The second operand where its axes begin at one of the first's, as before opset 7."""
    axis = call.get("axis")
    if axis is None or not call.flag("broadcast"):
        return y
    axis %= len(x.shape)
    return call.tensor(y).reshape(*y.shape, *[1] * (len(x.shape) - axis - len(y.shape)))


for _name, (_function, _numpy) in UNARY.items():
    _declare_unary(_name, _function, _numpy)
for _name, (_both, _numpy_both) in ARITHMETIC.items():
    _declare_binary(_name, _both, _numpy_both, numbers=True)
for _name, (_both, _numpy_both) in LOGICAL.items():
    _declare_binary(_name, _both, _numpy_both, numbers=False)


def _divide_on_host(call: Call, x: Any, y: Any) -> Any:
    if kind_of(x.dtype) == "f":
        return np.asarray(x / y, x.dtype)
    floor = x // y
    return np.asarray(floor + ((floor < 0) & (floor * y != x)), x.dtype)


@operator("Div", on_host=_divide_on_host)
def divide(call: Call, x: Any, y: Any) -> Any:
    """Integers are rounded towards zero."""
    dtype = x.dtype
    x, y = call.operands(x, _at_axis(call, x, y))
    return x / y if kind_of(dtype) == "f" else functions.div(x, y, rounding_mode="trunc")


@operator(
    "Mod", on_host=lambda call, x, y: np.asarray((np.fmod if call.get("fmod") else np.mod)(x, y), x.dtype)
)
def modulo(call: Call, x: Any, y: Any) -> Any:
    return (functions.fmod if call.get("fmod") else functions.remainder)(*call.tensors(x, y))


@operator("Pow", on_host=lambda call, x, y: np.asarray(np.power(x, y), x.dtype))
def power(call: Call, x: Any, y: Any) -> Any:
    """The result has the base's dtype."""
    dtype = x.dtype
    x, y = call.operands(x, _at_axis(call, x, y))
    result = x**y
    return result if result.dtype == dtype else result.to(dtype)


@operator("BitShift")
def bit_shift(call: Call, x: Any, y: Any) -> Any:
    left = call.choice("direction", "LEFT", ("RIGHT",)) == "LEFT"
    return (functions.bitwise_left_shift if left else functions.bitwise_right_shift)(*call.tensors(x, y))


def _variadic(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda call, *values: reduce(function, call.tensors(*values))


def _variadic_on_host(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda call, *values: np.asarray(reduce(function, values))


operator("Max", on_host=_variadic_on_host(np.maximum))(_variadic(functions.maximum))
operator("Min", on_host=_variadic_on_host(np.minimum))(_variadic(functions.minimum))
operator("Sum")(_variadic(functions.add))


@operator("Mean")
def mean(call: Call, *values: Any) -> Any:
    return reduce(functions.add, call.tensors(*values)) / len(values)


@operator("Where", on_host=lambda call, condition, x, y: np.where(condition, x, y))
def where(call: Call, condition: Any, x: Any, y: Any) -> Any:
    return functions.where(*call.tensors(condition, x, y))


@operator("Identity", on_host=SAME)
def identity(call: Call, x: Any) -> Any:
    return x


@operator("Dropout", on_host=SAME)
def dropout(call: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """Its input: what a trained network computes. In training it is noise, which no file can repeat."""
    if training is not None and call.number(training) and call.number(ratio, 0.5):
        raise call.refuse("dropout in training mode")
    if call.results == 1:
        return x
    return x, np.broadcast_to(np.True_, tuple(x.shape)) if is_array(x) else ones_like(x).bool()


@operator("Clip", until=10)
def clip_by_attributes(call: Call, x: Any) -> Any:
    return functions.clamp(call.tensor(x), call.get("min"), call.get("max"))


def _clip_on_host(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    raised = x if low is None else np.maximum(x, low)
    return np.asarray(raised if high is None else np.minimum(raised, high), x.dtype)


@operator("Clip", since=11, on_host=_clip_on_host)
def clip(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    x, numbers = call.tensor(x), (low is None or is_array(low)) and (high is None or is_array(high))
    if numbers and (low is not None or high is not None):
        return functions.clamp(x, call.number(low), call.number(high))
    x = x if low is None else functions.maximum(x, call.tensor(low))
    return x if high is None else functions.minimum(x, call.tensor(high))


@operator("Elu", "Celu")
def elu(call: Call, x: Any) -> Any:
    function = F.elu if call.node.op_type == "Elu" else F.celu
    return function(call.tensor(x), call.get("alpha", 1.0))


@operator("Selu")
def selu(call: Call, x: Any) -> Any:
    x = call.tensor(x)
    alpha, gamma = call.get("alpha", 1.6732631921768188), call.get("gamma", 1.0507010221481323)
    return gamma * F.elu(x, alpha)


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Any) -> Any:
    return F.leaky_relu(call.tensor(x), call.get("alpha", 0.01))


@operator("ThresholdedRelu")
def thresholded_relu(call: Call, x: Any) -> Any:
    return F.threshold(call.tensor(x), call.get("alpha", 1.0), 0.0)


@operator("PRelu")
def prelu(call: Call, x: Any, slope: Any) -> Any:
    x, slope = call.tensors(x, slope)
    if call.opset < 7 and slope.ndim == 1:  # one a channel
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return functions.where(x < 0, x * slope, x)


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Any) -> Any:
    return functions.clamp(call.tensor(x) * call.get("alpha", 0.2) + call.get("beta", 0.5), 0, 1)


@operator("Gelu")
def gelu(call: Call, x: Any) -> Any:
    form: Any = call.choice("approximate", "none", ("tanh",))
    return F.gelu(call.tensor(x), approximate=form)


@operator("Shrink")
def shrink(call: Call, x: Any) -> Any:
    x, threshold, bias = call.tensor(x), call.get("lambd", 0.5), call.get("bias", 0.0)
    zero = zeros_like(x)
    return functions.where(x < -threshold, x + bias, functions.where(x > threshold, x - bias, zero))


@operator("Swish")
def swish(call: Call, x: Any) -> Any:
    x, alpha = call.tensor(x), call.get("alpha", 1.0)
    return F.silu(x) if alpha == 1 else x * functions.sigmoid(x * alpha)


@operator("IsInf")
def is_inf(call: Call, x: Any) -> Any:
    x = call.tensor(x)
    positive, negative = call.flag("detect_positive", True), call.flag("detect_negative", True)
    if positive and negative:
        return functions.isinf(x)
    if positive or negative:
        return (functions.isposinf if positive else functions.isneginf)(x)
    return zeros_like(x).bool()


def as_float8(call: Call, x: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers as floats of 8 bits: beyond their range the largest ones, unless the node says otherwise."""
    largest, wide = float(finfo(dtype).max), x.float()
    if call.flag("saturate", True):
        return functions.clamp(wide, -largest, largest).to(dtype)
    if dtype == FLOAT8_E4M3FN:  # nan where there is no infinity, from what would be rounded to more
        wide = wide.masked_fill(wide.abs() > 464.0, float("nan"))
    return wide.to(dtype)


@operator("Cast", "CastLike", on_host=SAME)
def cast(call: Call, x: Any, like: Any = None) -> Any:
    dtype = element_dtype(call.get("to")) if like is None else supported(like.dtype)
    if dtype in FLOAT8:
        return as_float8(call, call.tensor(x), dtype)
    if is_array(x):
        return np.asarray(x).astype(dtype)
    if dtype != held(dtype):  # numbers of 4 and of 2 bits wrap around in them
        span, (low, _) = 2 ** {"4": 4, "2": 2}[dtype.name[-1]], limits(dtype)
        return (functions.remainder(functions.trunc(x.float()) - low, span) + low).to(held(dtype))
    return x.to(dtype)


@operator("BitCast")
def bit_cast(call: Call, x: Any) -> Any:
    return call.tensor(x).view(element_dtype(call.get("to")))
