"""Functions of two tensors, element by element, that are made of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dl4all.ops.activation.smooth import sigmoid
from dl4all.ops.composite.unary import floats, signbit
from dl4all.ops.core import tape
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import eq, ge, gt, isinf, isnan, le, maximum, minimum
from dl4all.ops.elementwise.declare import broadcast_shapes, promote
from dl4all.ops.elementwise.logic import logical_and, logical_or, where
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.elementwise.transcendental import exp, exp2, log, log1p, pow, sqrt
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand


@export("dl", "Tensor")
def fmax(input: Any, other: Any) -> Any:
    """The larger of each pair of elements, and of nan and a number the number.

    Example:
        >>> import dl4all as dl
        >>> dl.fmax(dl.tensor([1.0, float("nan")]), dl.tensor([3.0, 2.0])).tolist()
        [3.0, 2.0]
    """
    return where(logical_or(ge(input, other), isnan(other)), input, other)


@export("dl", "Tensor")
def fmin(input: Any, other: Any) -> Any:
    """The smaller of each pair of elements, and of nan and a number the number.

    Example:
        >>> import dl4all as dl
        >>> dl.fmin(dl.tensor([1.0, float("nan")]), dl.tensor([3.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return where(logical_or(le(input, other), isnan(other)), input, other)


@export("dl", "Tensor", "Tensor_")
def copysign(input: Any, other: Any) -> Any:
    """The size of each element with the sign of another, a tensor's or a number's.

    Example:
        >>> import dl4all as dl
        >>> dl.copysign(dl.tensor([1.0, -2.0]), -1.0).tolist()
        [-1.0, -2.0]
    """
    size = abs(floats(input))
    if isinstance(other, TensorBase):
        return where(signbit(other), -size, size)
    return -size if math.copysign(1, other) < 0 else size


@export("dl", "Tensor", "Tensor_")
def heaviside(input: Any, values: Any) -> Any:
    """0 for elements below 0, 1 for those above, and for 0 that of `values`.

    Example:
        >>> import dl4all as dl
        >>> dl.heaviside(dl.tensor([-1.5, 0.0, 2.0]), dl.tensor([0.5])).tolist()
        [0.0, 0.5, 1.0]
    """
    return where(eq(input, 0), values, cast(gt(input, 0), input.dtype.name))


@export("dl", "Tensor", "Tensor_")
def xlogy(input: Any, other: Any) -> Any:
    """``input * log(other)``, which is 0 where `input` is 0; nan where `other` is.

    Example:
        >>> import dl4all as dl
        >>> dl.xlogy(dl.tensor([0.0, 2.0]), dl.tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
    """
    nothing = logical_and(eq(input, 0), logical_or(le(other, 0), eq(other, math.inf)))
    return mul(input, log(where(nothing, 1.0, other)))


@export("dl", "Tensor", "Tensor_")
def ldexp(input: Any, other: Any) -> Any:
    """``input`` times 2 to the power of `other`.

    Example:
        >>> import dl4all as dl
        >>> dl.ldexp(dl.tensor([1.5]), dl.tensor([3])).tolist()
        [12.0]
    """
    return mul(input, pow(2.0, other))


@export("dl", "Tensor")
def float_power(input: Any, exponent: Any) -> Any:
    """Each element to the power of another, in float64.

    Example:
        >>> import dl4all as dl
        >>> dl.float_power(dl.tensor([2, 3]), 2).tolist()
        [4.0, 9.0]
    """
    base, power = (cast(x, "float64") if isinstance(x, TensorBase) else float(x) for x in (input, exponent))
    return pow(base, power)


# Those whose gradients are known, and hold where a chain of ops would give nan


def _alike(name: str, *operands: Any) -> list[Any]:
    """Tensors of one shape and one floating dtype."""
    dtype = promote(name, operands, "float")
    shape = broadcast_shapes(name, operands)
    return [expand(x if x.dtype == dtype else cast(x, dtype.name), shape) for x in operands]


def _hypot(a: Any, b: Any) -> Any:
    large, small = maximum(abs(a), abs(b)), minimum(abs(a), abs(b))
    ratio = where(eq(large, small), 1.0, true_divide(small, large))
    return where(logical_or(isinf(a), isinf(b)), math.inf, large * sqrt(ratio * ratio + 1))


@export("dl", "Tensor", "Tensor_")
def hypot(input: Any, other: Any) -> Any:
    """``sqrt(input ** 2 + other ** 2)``, without overflow on the way.

    Example:
        >>> import dl4all as dl
        >>> dl.hypot(dl.tensor([3.0]), dl.tensor([4.0])).tolist()
        [5.0]
    """
    a, b = _alike("hypot", input, other)
    with tape.gradients(False):
        made = _hypot(a, b)

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        return [mul(grads[0], true_divide(x, saved[2])) for x in saved[:2]]

    tape.add_node("hypot", [a, b], [made], backward, (a, b, made))
    return made


def _added(name: str, input: Any, other: Any, two: Callable[[Any], Any], natural: float) -> Any:
    """The logarithm of a sum of powers; `natural` is the logarithm of the base, `two` its power."""
    a, b = _alike(name, input, other)
    with tape.gradients(False):
        same = eq(a, b)  # infinities, whose difference is nan, among them
        gap = where(same, 0.0, -abs(sub(a, b)))
        made = maximum(a, b) + log1p(two(gap)) / natural

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        first, second = saved
        gap = where(eq(first, second), 0.0, sub(first, second)) * natural
        return [mul(grads[0], sigmoid(gap)), mul(grads[0], sigmoid(-gap))]

    tape.add_node(name, [a, b], [made], backward, (a, b))
    return made


@export("dl", "Tensor")
def logaddexp(input: Any, other: Any) -> Any:
    """``log(exp(input) + exp(other))``, without overflow on the way.

    Example:
        >>> import dl4all as dl
        >>> dl.logaddexp(dl.tensor([1000.0]), dl.tensor([-1000.0])).tolist()
        [1000.0]
    """
    return _added("logaddexp", input, other, exp, 1.0)


@export("dl", "Tensor")
def logaddexp2(input: Any, other: Any) -> Any:
    """``log2(2 ** input + 2 ** other)``, without overflow on the way.

    Example:
        >>> import dl4all as dl
        >>> dl.logaddexp2(dl.tensor([5.0]), dl.tensor([5.0])).tolist()
        [6.0]
    """
    return _added("logaddexp2", input, other, exp2, math.log(2))


@export("dl")
def rsub(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """``other - alpha * input``.

    Example:
        >>> import dl4all as dl
        >>> dl.rsub(dl.tensor([1.0, 2.0]), 10.0, alpha=2).tolist()
        [8.0, 6.0]
    """
    return sub(other, input, alpha=alpha)
