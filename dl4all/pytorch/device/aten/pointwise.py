"""Elementwise arithmetic, rounding, powers and transcendental functions: which dl4all op each ATen op is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dl4all import ops
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.pytorch.device.dispatch.registration import declare
from dl4all.pytorch.device.storage.memory import NotNative


def add(input: Any, other: Any, alpha: Any = 1) -> Any:
    return ops.add(input, other, alpha=alpha)


def sub(input: Any, other: Any, alpha: Any = 1) -> Any:
    return ops.sub(input, other, alpha=alpha)


def rsub(input: Any, other: Any, alpha: Any = 1) -> Any:
    return ops.sub(other, input, alpha=alpha)


def div(input: Any, other: Any, *, rounding_mode: Any = None) -> Any:
    return ops.div(input, other, rounding_mode=rounding_mode)


def remainder_of_number(number: Any, other: Any) -> Any:
    return ops.remainder(number, other)


def power(base: Any, exponent: Any) -> Any:
    """A power; the usual exponents without logarithms, as ATen computes them."""
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        floating = kind_of(base.dtype) == "f"
        if not floating and isinstance(exponent, int) and exponent < 0:
            raise NotNative("integers to negative integer powers are an error")
        if kind_of(base.dtype) == "b" and isinstance(exponent, int):
            base = ops.cast(base, "int64")
        if exponent == 2 and (floating or isinstance(exponent, int)):
            return ops.mul(base, base)
        if floating and exponent in SIMPLE_POWERS:
            return SIMPLE_POWERS[exponent](base)
    return ops.pow(base, exponent)


SIMPLE_POWERS: dict[float, Callable[..., Any]] = {
    0.5: ops.sqrt,
    -0.5: ops.rsqrt,
    -1: ops.reciprocal,
    3: lambda base: ops.mul(ops.mul(base, base), base),
}


def angle(input: Any) -> Any:
    """The angle of real numbers: pi for negative ones; nan stays nan."""
    if kind_of(input.dtype) != "f":
        return ops.where(ops.lt(input, 0), math.pi, ops.zero(input))
    return ops.where(ops.lt(input, 0), math.pi, ops.where(ops.isnan(input), input, ops.zero(input)))


def nan_to_num(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    return ops.nan_to_num(input, 0.0 if nan is None else nan, posinf, neginf)


def round_decimals(input: Any, *, decimals: int) -> Any:
    return ops.round(input, decimals=decimals)


def lerp(input: Any, end: Any, weight: Any) -> Any:
    if any(kind_of(one.dtype) != "f" for one in (input, end, weight) if isinstance(one, TensorBase)):
        raise NotNative("lerp takes floats")
    return ops.lerp(input, end, weight)


def logit_backward(grad: Any, input: Any, eps: Any = None) -> Any:
    """The gradient of logit: 0 outside of the limits, nan outside of 0 to 1 without any."""
    low, high, outside = (0.0, 1.0, math.nan) if eps is None else (eps, 1.0 - eps, 0.0)
    slope = ops.true_divide(grad, ops.mul(input, ops.sub(1.0, input)))
    return ops.where(ops.in_range(input, low, high), slope, outside)


def xlog1py(input: Any, other: Any) -> Any:
    """``x log(1 + y)``: 0 where x is 0 and y is not nan."""
    if not isinstance(other, TensorBase):
        if math.isnan(other):
            return ops.mul(input, math.nan)
        logarithm = math.log1p(other) if other > -1 else -math.inf if other == -1 else math.nan
        return ops.where(ops.eq(input, 0), 0.0, ops.mul(input, logarithm))
    exponents: Any = other
    is_zero = ops.logical_and(ops.eq(input, 0), ops.logical_not(ops.isnan(exponents)))
    return ops.where(is_zero, 0.0, ops.mul(input, ops.log1p(exponents)))


def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A composed function of tensors that does not take numbers."""

    def checked(*operands: Any) -> Any:
        if not all(isinstance(one, TensorBase) for one in operands):
            raise NotNative("a number beside a tensor")
        return function(*operands)

    checked.__name__ = function.__name__
    return checked


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add.Tensor": ops.add,
    "add.Scalar": add,
    "sub.Tensor": ops.sub,
    "sub.Scalar": sub,
    "rsub.Tensor": rsub,
    "rsub.Scalar": rsub,
    "mul.Tensor": ops.mul,
    "mul.Scalar": ops.mul,
    "div.Tensor": ops.true_divide,
    "div.Scalar": ops.true_divide,
    "div.Tensor_mode": div,
    "div.Scalar_mode": div,
    "floor_divide": ops.floor_divide,
    "floor_divide.Scalar": ops.floor_divide,
    "remainder.Tensor": ops.remainder,
    "remainder.Scalar": ops.remainder,
    "remainder.Scalar_Tensor": remainder_of_number,
    "fmod.Tensor": ops.fmod,
    "fmod.Scalar": ops.fmod,
    "addcmul": ops.addcmul,
    "addcdiv": ops.addcdiv,
    "lerp.Tensor": lerp,
    "lerp.Scalar": lerp,
    "neg": ops.neg,
    "abs": ops.abs,
    "sign": ops.sign,
    "sgn": ops.sign,
    "reciprocal": ops.reciprocal,
    "angle": angle,
}

ROUNDING: dict[str, Callable[..., Any]] = {
    "ceil": ops.ceil,
    "floor": ops.floor,
    "round": ops.round_even,
    "round.decimals": round_decimals,
    "trunc": ops.trunc,
    "frac": ops.frac,
    "nan_to_num": nan_to_num,
}

BITS: dict[str, Callable[..., Any]] = {
    f"bitwise_{name}.{kind}": getattr(ops, f"bitwise_{name}")
    for name in ("and", "or", "xor")
    for kind in ("Tensor", "Scalar", "Scalar_Tensor")
} | {"bitwise_not": ops.bitwise_not}

POWERS: dict[str, Callable[..., Any]] = {
    "pow.Tensor_Tensor": power,
    "pow.Tensor_Scalar": power,
    "pow.Scalar": ops.pow,
    "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt,
    "ldexp.Tensor": on_tensors(ops.ldexp),
    "hypot": on_tensors(ops.hypot),
}

TRANSCENDENTAL: dict[str, Callable[..., Any]] = {
    "exp": ops.exp,
    "exp2": ops.exp2,
    "expm1": ops.expm1,
    "log": ops.log,
    "log2": ops.log2,
    "log10": ops.log10,
    "log1p": ops.log1p,
    "logaddexp": on_tensors(ops.logaddexp),
    "logaddexp2": on_tensors(ops.logaddexp2),
    "logit": ops.logit,
    "logit_backward": logit_backward,
    "xlogy.Tensor": on_tensors(ops.xlogy),
    "special_xlog1py": xlog1py,
    "special_entr": ops.entr,
    "sin": ops.sin,
    "cos": ops.cos,
    "tan": ops.tan,
    "asin": ops.asin,
    "acos": ops.acos,
    "atan": ops.atan,
    "atan2": ops.atan2,
    "sinh": ops.sinh,
    "cosh": ops.cosh,
    "tanh": ops.tanh,
    "tanh_backward": ops.tanh_backward,
    "asinh": ops.asinh,
    "acosh": ops.acosh,
    "atanh": ops.atanh,
    "sinc": ops.sinc,
    "deg2rad": ops.deg2rad,
    "rad2deg": ops.rad2deg,
    "erf": ops.erf,
    "erfc": ops.erfc,
}

SPECIAL: dict[str, Callable[..., Any]] = {
    "lgamma": ops.lgamma,
    "digamma": ops.digamma,
    "polygamma": ops.polygamma,
    "special_zeta": ops.zeta,
    "erfinv": ops.erfinv,
    "special_erfcx": ops.erfcx,
    "special_ndtri": ops.ndtri,
    "special_log_ndtr": ops.log_ndtr,
}

for _name, _function in (ARITHMETIC | ROUNDING | BITS | POWERS | TRANSCENDENTAL | SPECIAL).items():
    declare(_name, _function, pointwise=True)
