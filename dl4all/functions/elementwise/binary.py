"""Elementwise functions of two tensors that are composed of ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dl4all.functions.elementwise.unary import as_float, signbit
from dl4all.functions.host import computed_on_host, to_device_of
from dl4all.ops.activation.smooth import sigmoid
from dl4all.ops.core import tape
from dl4all.ops.core.arguments.mixed_devices import on_one_device
from dl4all.ops.core.arguments.mixed_dtypes import scalars_of_another_dtype
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import eq, ge, gt, isinf, isnan, le, maximum, minimum
from dl4all.ops.elementwise.declare import broadcast_shapes, promote
from dl4all.ops.elementwise.logic import logical_and, logical_or, where
from dl4all.ops.elementwise.rounding import abs, zero
from dl4all.ops.elementwise.transcendental import exp, exp2, log, log1p, pow, sqrt
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand


@export("dl", "Tensor", out=True)
def fmax(input: Array, other: Array) -> Array:
    """The larger of each pair of elements; the other element where one is nan.

    Example:
        >>> import dl4all as dl
        >>> dl.fmax(dl.tensor([1.0, float("nan")]), dl.tensor([3.0, 2.0])).tolist()
        [3.0, 2.0]
    """
    return where(logical_or(ge(input, other), isnan(other)), input, other)


@export("dl", "Tensor", out=True)
def fmin(input: Array, other: Array) -> Array:
    """The smaller of each pair of elements; the other element where one is nan.

    Example:
        >>> import dl4all as dl
        >>> dl.fmin(dl.tensor([1.0, float("nan")]), dl.tensor([3.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return where(logical_or(le(input, other), isnan(other)), input, other)


@export("dl", "Tensor", "Tensor_", out=True)
def copysign(input: Array, other: Array | Scalar) -> Array:
    """The absolute value of each element of `input` with the sign of `other`, a tensor or a number.

    Example:
        >>> import dl4all as dl
        >>> dl.copysign(dl.tensor([1.0, -2.0]), -1.0).tolist()
        [-1.0, -2.0]
    """
    magnitude = abs(as_float(input))
    if isinstance(other, TensorBase):
        return where(signbit(other), -magnitude, magnitude)
    return -magnitude if math.copysign(1, other) < 0 else magnitude


@export("dl", "Tensor", "Tensor_", out=True)
def heaviside(input: Array, values: Array | Scalar) -> Array:
    """The Heaviside step function: 0 below 0, 1 above 0, and the element of `values` at 0.

    Example:
        >>> import dl4all as dl
        >>> dl.heaviside(dl.tensor([-1.5, 0.0, 2.0]), dl.tensor([0.5])).tolist()
        [0.0, 0.5, 1.0]
    """
    return where(eq(input, 0), values, cast(gt(input, 0), input.dtype.name))


@export("dl", "Tensor", "Tensor_", out=True)
def xlogy(input: Array, other: Array) -> Array:
    """``input * log(other)``, but 0 where `input` is 0; nan where `other` is nan.

    Example:
        >>> import dl4all as dl
        >>> dl.xlogy(dl.tensor([0.0, 2.0]), dl.tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
    """
    is_zero = logical_and(eq(input, 0), logical_or(le(other, 0), eq(other, math.inf)))
    return mul(input, log(where(is_zero, 1.0, other)))


@export("dl", "Tensor", "Tensor_", out=True)
def ldexp(input: Array, other: Array) -> Array:
    """``input * 2 ** other``.

    Example:
        >>> import dl4all as dl
        >>> dl.ldexp(dl.tensor([1.5]), dl.tensor([3])).tolist()
        [12.0]
    """
    return mul(input, pow(2.0, other))


@export("dl", "Tensor", out=True)
def float_power(input: Array | Scalar, exponent: Array | Scalar) -> Array:
    """``input ** exponent``, computed in float64.

    Example:
        >>> import dl4all as dl
        >>> dl.float_power(dl.tensor([2, 3]), 2).tolist()
        [4.0, 9.0]
    """
    base, power = (cast(x, "float64") if isinstance(x, TensorBase) else float(x) for x in (input, exponent))
    return pow(base, power)


# Functions with gradients in closed form, where the chain rule through their ops would give nan


def _broadcast_floats(name: str, *operands: Array) -> list[Array]:
    """Operands with a common shape and a common floating dtype, on one device."""
    ignored = {id(operand) for operand in scalars_of_another_dtype(operands)}
    dtype = promote(name, [operand for operand in operands if id(operand) not in ignored], "float")
    shape = broadcast_shapes(name, operands)
    together = on_one_device(name, operands, scalars=True)
    return [expand(x if x.dtype == dtype else cast(x, dtype.name), shape) for x in together]


def _hypot(a: Array, b: Array) -> Array:
    large, small = maximum(abs(a), abs(b)), minimum(abs(a), abs(b))
    ratio = where(eq(large, small), 1.0, true_divide(small, large))
    return where(logical_or(isinf(a), isinf(b)), math.inf, large * sqrt(ratio * ratio + 1))


@export("dl", "Tensor", "Tensor_")
@reads("input", "other")
def nextafter(input: Array, other: Array) -> Array:
    """The next number after each element of the input, in the direction of `other`.

    Args:
        input, other: floats of one dtype; their shapes broadcast.

    Raises:
        DTypeError: the operands are not of floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.nextafter(dl.tensor([1.0]), dl.tensor([2.0])).tolist()
        [1.0000001192092896]
    """
    check_float("nextafter", input, other)
    a, b = _broadcast_floats("nextafter", input, other)
    result = _next_number(tape.alias(a), tape.alias(b))

    def backward(grads: Sequence[Array], saved: Sequence[Array], needs: Sequence[bool]) -> list[Array]:
        return [where(eq(*saved), 0.0, grads[0]), zero(grads[0])]

    tape.add_node("nextafter", [a, b], [result], backward, (a, b))
    return result


@computed_on_host("nextafter")
def _next_number(a: Array, b: Array) -> Array:
    return to_device_of(a, np.asarray(np.nextafter(a.on_host(), b.on_host())))


@export("dl", "Tensor", "Tensor_", out=True)
def hypot(input: Array, other: Array) -> Array:
    """``sqrt(input ** 2 + other ** 2)`` without intermediate overflow.

    Example:
        >>> import dl4all as dl
        >>> dl.hypot(dl.tensor([3.0]), dl.tensor([4.0])).tolist()
        [5.0]
    """
    a, b = _broadcast_floats("hypot", input, other)
    with tape.gradients(False):
        result = _hypot(a, b)

    def backward(grads: Sequence[Array], saved: Sequence[Array], needs: Sequence[bool]) -> list[Array]:
        return [mul(grads[0], true_divide(x, saved[2])) for x in saved[:2]]

    tape.add_node("hypot", [a, b], [result], backward, (a, b, result))
    return result


def _log_add_power(
    name: str, input: Array, other: Array, power: Callable[[Array], Array], log_base: float
) -> Array:
    """The logarithm of the sum of the powers of a base.

    Args:
        name: of the function, for errors.
        input, other: the exponents.
        power: returns the base to the power of its argument.
        log_base: the natural logarithm of the base.
    """
    a, b = _broadcast_floats(name, input, other)
    with tape.gradients(False):
        same = eq(a, b)  # equal infinities too, whose difference is nan
        gap = where(same, 0.0, -abs(sub(a, b)))
        result = maximum(a, b) + log1p(power(gap)) / log_base

    def backward(grads: Sequence[Array], saved: Sequence[Array], needs: Sequence[bool]) -> list[Array]:
        a, b = saved
        gap = where(eq(a, b), 0.0, sub(a, b)) * log_base
        return [mul(grads[0], sigmoid(gap)), mul(grads[0], sigmoid(-gap))]

    tape.add_node(name, [a, b], [result], backward, (a, b))
    return result


@export("dl", "Tensor", out=True)
def logaddexp(input: Array, other: Array) -> Array:
    """``log(exp(input) + exp(other))`` without intermediate overflow.

    Example:
        >>> import dl4all as dl
        >>> dl.logaddexp(dl.tensor([1000.0]), dl.tensor([-1000.0])).tolist()
        [1000.0]
    """
    return _log_add_power("logaddexp", input, other, exp, 1.0)


@export("dl", "Tensor", out=True)
def logaddexp2(input: Array, other: Array) -> Array:
    """``log2(2 ** input + 2 ** other)`` without intermediate overflow.

    Example:
        >>> import dl4all as dl
        >>> dl.logaddexp2(dl.tensor([5.0]), dl.tensor([5.0])).tolist()
        [6.0]
    """
    return _log_add_power("logaddexp2", input, other, exp2, math.log(2))


@export("dl")
def rsub(input: Array, other: Array | Scalar, *, alpha: float = 1) -> Array:
    """``other - alpha * input``.

    Example:
        >>> import dl4all as dl
        >>> dl.rsub(dl.tensor([1.0, 2.0]), 10.0, alpha=2).tolist()
        [8.0, 6.0]
    """
    return sub(other, input, alpha=alpha)
