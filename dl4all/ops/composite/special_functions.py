"""Special functions that are composed of ops."""

from __future__ import annotations

import math

from dl4all.ops.composite.unary import as_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import integer
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul, sub
from dl4all.ops.elementwise.comparison import lt
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import zero
from dl4all.ops.elementwise.special_functions import digamma, erfcx, zeta
from dl4all.ops.elementwise.transcendental import erfc, log, log1p

MOST_DERIVATIVES = 170
"""Of higher orders the factorial is no float64."""


@export()
def polygamma(n: int, input: Array) -> Array:
    """The derivative of order `n` of :func:`digamma`.

    Args:
        n: 0 for :func:`digamma` itself.
        input: numbers, above -10000 where `n` is not 0.

    Raises:
        ArgumentError: `n` is no int from 0 to 170.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.polygamma(1, dl.tensor([1.0])).round(decimals=4).tolist()
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
    x = as_float(input)
    low = lt(x, -1)
    scaled = mul(x, math.sqrt(0.5))
    below = where(low, scaled, -1.0)
    tail = sub(log(mul(erfcx(-below), 0.5)), mul(below, below))
    return where(low, tail, log1p(mul(erfc(scaled), -0.5)))
