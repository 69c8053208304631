"""Special functions that are composed of ops."""

from __future__ import annotations

import math

from dl4all.errors import DTypeError
from dl4all.functions.elementwise.unary import as_float, with_derivative
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array, Scalar, TensorBase
from dl4all.ops.elementwise.arithmetic import add, mul, neg, sub, true_divide
from dl4all.ops.elementwise.comparison import eq, gt, isnan, lt
from dl4all.ops.elementwise.logic import logical_and, logical_not, where
from dl4all.ops.elementwise.rounding import zero
from dl4all.ops.elementwise.special_functions import digamma, erfcx, lgamma, zeta
from dl4all.ops.elementwise.transcendental import erfc, exp, log, log1p

MOST_DERIVATIVES = 170
"""Of higher orders the factorial is no float64."""


@export("dl")
def polygamma(n: int, input: Array) -> Array:
    """The derivative of order `n` of :func:`digamma`.

    Args:
        n: 0 for :func:`digamma` itself.
        input: numbers, above -10000 where `n` is not 0.

    Raises:
        ArgumentError: `n` is no int from 0 to 170.

    Example:
        >>> import dl4all as dl
        >>> dl.polygamma(1, dl.tensor([1.0])).round(decimals=4).tolist()
        [1.6448999643325806]
    """
    integer("polygamma", "n", n, 0, MOST_DERIVATIVES)
    if n == 0:
        return digamma(input)
    x = as_float(input)
    factor = float(math.factorial(n))
    return mul(zeta(zero(x) + float(n + 1), x), factor if n % 2 else -factor)


@export()
def log_ndtr(input: Array) -> Array:
    """The logarithm of the normal distribution's cumulative distribution function, far below 0 too.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.log_ndtr(dl.tensor([0.0])).round(decimals=4).tolist()
        [-0.6930999755859375]
    """
    return with_derivative("log_ndtr", input, _log_ndtr, _log_ndtr_derivative)


def _log_ndtr(x: Array) -> Array:
    low = lt(x, -1)
    scaled = mul(x, math.sqrt(0.5))
    below = where(low, scaled, -1.0)
    tail = sub(log(mul(erfcx(-below), 0.5)), mul(below, below))
    return where(low, tail, log1p(mul(erfc(scaled), -0.5)))


def _log_ndtr_derivative(x: Array) -> Array:
    """The density over the distribution function; far below 0 both are too small for a quotient."""
    low = lt(x, -1)
    scaled = mul(x, math.sqrt(0.5))
    below, above = where(low, scaled, -1.0), where(low, 0.0, scaled)
    near = true_divide(exp(neg(mul(above, above))), erfc(neg(above)))
    return mul(where(low, true_divide(1.0, erfcx(neg(below))), near), math.sqrt(2 / math.pi))


@export()
def ndtr(input: Array) -> Array:
    """The normal distribution's cumulative distribution function; ``dl.special.ndtr``.

    Example:
        >>> import dl4all as dl
        >>> dl.special.ndtr(dl.tensor([0.0])).tolist()
        [0.5]
    """
    return mul(erfc(mul(as_float(input), -math.sqrt(0.5))), 0.5)


@export()
def entr(input: Array) -> Array:
    """``-input * log(input)``: 0 at 0, and minus infinity below; ``dl.special.entr``.

    Example:
        >>> import dl4all as dl
        >>> dl.special.entr(dl.tensor([0.0, 1.0, -1.0])).tolist()
        [0.0, -0.0, -inf]
    """
    return with_derivative("entr", input, _entropy, lambda x: neg(add(log(x), 1)))


def _entropy(x: Array) -> Array:
    inside = neg(mul(x, log(where(gt(x, 0), x, 1.0))))
    outside = where(eq(x, 0), 0.0, where(isnan(x), x, -math.inf))
    return where(gt(x, 0), inside, outside)


@export()
def xlog1py(input: Array | Scalar, other: Array | Scalar) -> Array:
    """``input * log(1 + other)``, but 0 where `input` is 0 and `other` is not nan; ``dl.special.xlog1py``.

    Raises:
        DTypeError: there is no tensor.

    Example:
        >>> import dl4all as dl
        >>> dl.special.xlog1py(dl.tensor([0.0, 2.0]), dl.tensor([-1.0, 0.0])).tolist()
        [0.0, 0.0]
    """
    tensors = [one for one in (input, other) if isinstance(one, TensorBase)]
    if not tensors:
        raise DTypeError("[xlog1py] expected a tensor, got only numbers; use dl.tensor(...)")
    x, y = (
        one if isinstance(one, TensorBase) else as_float(zero(tensors[0])) + one for one in (input, other)
    )
    is_zero = logical_and(eq(x, 0), logical_not(isnan(y)))
    return mul(x, log1p(where(is_zero, 0.0, y)))


@export("dl", "Tensor", "Tensor_")
def mvlgamma(input: Array, p: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension `p`.

    Args:
        input: numbers above ``(p - 1) / 2``.
        p: the dimension, at least 1.

    Raises:
        ArgumentError: `p` is no int above 0.

    Example:
        >>> import dl4all as dl
        >>> dl.mvlgamma(dl.tensor([3.0]), 1).round(decimals=4).tolist()
        [0.6930999755859375]
    """
    integer("mvlgamma", "p", p, least=1)
    x = as_float(input)
    total = lgamma(x)
    for dimension in range(1, p):
        total = add(total, lgamma(sub(x, 0.5 * dimension)))
    return add(total, p * (p - 1) / 4 * math.log(math.pi))
