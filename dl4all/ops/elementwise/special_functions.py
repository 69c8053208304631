"""The gamma function's logarithm, its derivatives, Hurwitz's zeta function, the inverse error function."""

from __future__ import annotations

import math

from dl4all.ops.core.exports import export
from dl4all.ops.core.expressions import special_functions
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.declare import elementwise
from dl4all.ops.elementwise.rounding import zero
from dl4all.ops.elementwise.transcendental import exp


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl="lgammaf(x)", promotion="float", domain={"input": (0.1, 8)})
def lgamma(input: Array) -> Array:
    """The natural logarithm of the gamma function's absolute value; infinite for 0, -1, -2 and so on.

    Example:
        >>> import dl4all as dl
        >>> dl.lgamma(dl.tensor([1.0, 2.0])).tolist()
        [0.0, 0.0]
    """
    return special_functions.log_gamma(input)


@export("dl", "Tensor", "Tensor_", out=True)
@elementwise(glsl="digammaf(x)", promotion="float", domain={"input": (0.1, 8)})
def digamma(input: Array) -> Array:
    """The derivative of :func:`lgamma`; nan for -1, -2 and so on, infinite for 0.

    Example:
        >>> import dl4all as dl
        >>> dl.digamma(dl.tensor([1.0])).round(decimals=4).tolist()
        [-0.5771999955177307]
    """
    return special_functions.digamma(input)


@export()
@elementwise(glsl="zetaf(a, b)", promotion="float", domain={"input": (1.5, 6), "other": (0.5, 8)})
def zeta(input: Array, other: Array) -> Array:
    """Hurwitz's zeta function: the sum of ``(other + k) ** -input`` over all k from 0 on.

    It is infinite where `input` is 1 or `other` 0, -1, -2 and so on; nan where `input` is below 1, `other`
    below 0 and `input` no integer, or `other` below -10000. There is no gradient for `input`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.zeta(dl.tensor([2.0]), dl.tensor([1.0])).round(decimals=4).tolist()
        [1.6448999643325806]
    """
    return special_functions.zeta(input, other)


zeta.defgrad(None, lambda g, input, other: g * -input * zeta(input + 1, other))
lgamma.defgrad(lambda g, input: g * digamma(input))
digamma.defgrad(lambda g, input: g * zeta(zero(input) + 2, input))


@export("dl", "Tensor", "Tensor_", out=True, autocast="float32")
@elementwise(
    glsl="erfinvf(x)",
    promotion="float",
    domain={"input": (-0.9, 0.9)},
    grad=lambda g, result: g * exp(result * result) * (math.sqrt(math.pi) / 2),
)
def erfinv(input: Array) -> Array:
    """The inverse of the error function :func:`erf`: infinite for 1 and -1, nan beyond.

    Example:
        >>> import dl4all as dl
        >>> dl.erfinv(dl.tensor([0.0, 1.0])).tolist()
        [0.0, inf]
    """
    return special_functions.inverse_erf(input)


@export()
@elementwise(glsl="erfcxf(x)", promotion="float", domain={"input": (-2, 8)})
def erfcx(input: Array) -> Array:
    """``exp(input ** 2)`` times :func:`erfc`, without the underflow of that.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.erfcx(dl.tensor([0.0])).tolist()
        [1.0]
    """
    return special_functions.scaled_erfc(input)


erfcx.defgrad(lambda g, input, result: g * (input * result * 2 - 2 / math.sqrt(math.pi)))


@export()
@elementwise(
    glsl="ndtrif(x)",
    promotion="float",
    domain={"input": (0.05, 0.95)},
    grad=lambda g, result: g * exp(result * result * 0.5) * math.sqrt(2 * math.pi),
)
def ndtri(input: Array) -> Array:
    """The normal distribution's quantiles: the numbers below which a share `input` of it lies.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.ndtri(dl.tensor([0.0, 0.5])).tolist()
        [-inf, 0.0]
    """
    return special_functions.normal_quantile(input)
