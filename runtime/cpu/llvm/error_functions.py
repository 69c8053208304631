"""The error function and its relatives, for float32 vectors of any number of lanes.

Sources: Moshier, Cephes mathematical library (1989); Shepherd and Laframboise, Chebyshev Approximation of
(1 + 2x) exp(x^2) erfc x in 0 <= x < inf, Mathematics of Computation 36 (1981), with Juffa's coefficients;
Giles, Approximating the erfinv function, GPU Computing Gems (2011).
"""

from __future__ import annotations

import math

from dl4all.runtime.cpu.llvm.functions import (
    absolute,
    exp,
    exp_of_sum,
    log1p,
    plus_product,
    polynomial,
    product_error,
    with_sign,
)
from dl4all.runtime.cpu.llvm.ir import Code, IrValue

ERF_COEFFICIENTS = (
    7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
    1.128358514861418e-1, -3.761262582423300e-1, 1.128379166726710,
)  # fmt: skip
LOG_ERFC_COEFFICIENTS = (
    -1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1,
    -1.28717512e-1,
)  # fmt: skip
"""Of log(erfc(x)) / x + 1 from 1 to 4."""

ERFC_COEFFICIENTS = (
    -4.01139259e-4, -1.23075210e-3, 1.31355342e-3, 8.63227434e-3, -8.05991981e-3, -5.42046614e-2,
    1.64055392e-1, -1.66031361e-1, -9.27639827e-2, 2.76978403e-1,
)  # fmt: skip
ERFINV_COEFFICIENTS = (
    2.81022636e-8, 3.43273939e-7, -3.5233877e-6, -4.39150654e-6, 2.1858087e-4, -1.25372503e-3, -4.17768164e-3,
    2.46640727e-1, 1.50140941,
)  # fmt: skip
ERFINV_TAIL_COEFFICIENTS = (
    -2.00214257e-4, 1.00950558e-4, 1.34934322e-3, -3.67342844e-3, 5.73950773e-3, -7.6224613e-3,
    9.43887047e-3, 1.00167406, 2.83297682,
)  # fmt: skip
LOG_ERFCX_COEFFICIENTS = (
    -0.138883845, 0.600429418, -0.890561247, 0.479564653, -0.151867219, 0.239930352, 0.155597853, -0.30288228,
    -1.25676574,
)  # fmt: skip
"""Of log(exp(x^2) erfc(x) (1 + x / 2)) / u for u = 1 - 1 / (1 + x / 2), fitted from 0 to the end below."""

ERFCX_COEFFICIENTS = tuple(c / math.sqrt(math.pi) for c in (105 / 16, -15 / 8, 3 / 4, -1 / 2, 1))
"""The asymptotic series."""

ERFC_END, ERF_END = 10.06, 4.0
"""Beyond these, erfc is 0 and erf 1."""


def _scaled_tail(code: Code, x: IrValue) -> IrValue:
    """exp(x^2) erfc(x) for x from 0 to 10."""
    inverse = 1.0 / (x + 2.0)
    q = (x - 2.0) * inverse
    # The rounding error of q matters.
    rest = plus_product(code, -x, q, plus_product(code, q + 1.0, -2.0, x))
    q = plus_product(code, inverse, rest, q)
    p = polynomial(code, q, ERFC_COEFFICIENTS)
    inverse = 1.0 / plus_product(code, x, 2.0, 1.0)
    q = plus_product(code, p, inverse, inverse)
    rest = plus_product(code, plus_product(code, q, -x, 0.5), 2.0, p - q)
    return plus_product(code, rest, inverse, q)


def _exp_of_square(code: Code, x: IrValue, sign: float) -> IrValue:
    """exp(x^2) or exp(-x^2)."""
    square = x * x
    error = product_error(code, x, x, square)
    power = exp(code, square * sign)
    return plus_product(code, power, error * sign, power)


def _small_erf(code: Code, x: IrValue) -> IrValue:
    """erf(x) for magnitudes below 1."""
    return polynomial(code, x * x, ERF_COEFFICIENTS) * x


def _tail(code: Code, magnitude: IrValue) -> IrValue:
    """erfc(x) for x >= 0."""
    x = code.select(magnitude > ERFC_END, ERFC_END, magnitude)
    t = 1.0 / plus_product(code, x, 0.5, 1.0)
    u = x * 0.5 * t
    square = x * x
    rest = polynomial(code, u, LOG_ERFCX_COEFFICIENTS) * u - product_error(code, x, x, square)
    y = t * exp_of_sum(code, -square, rest)
    return code.select(magnitude > ERFC_END, 0.0, y)


def erf(code: Code, x: IrValue) -> IrValue:
    """Within 4 ulps."""
    magnitude = absolute(code, x)
    bounded = code.select(magnitude > ERF_END, ERF_END, magnitude)
    logarithm = plus_product(code, polynomial(code, bounded, LOG_ERFC_COEFFICIENTS), bounded, -bounded)
    large = with_sign(code, 1.0 - exp(code, logarithm), x)
    return code.select(magnitude < 1.0, _small_erf(code, x), large)


def erfc(code: Code, x: IrValue) -> IrValue:
    """1 - erf(x), within 12 ulps."""
    tail = _tail(code, absolute(code, x))
    return code.select(x < 0.0, 2.0 - tail, tail)


def erfcx(code: Code, x: IrValue) -> IrValue:
    """exp(x^2) erfc(x), within 13 ulps."""
    magnitude = absolute(code, x)
    inverse = 1.0 / magnitude
    far = polynomial(code, inverse * inverse, ERFCX_COEFFICIENTS) * inverse
    tail = code.select(magnitude > ERFC_END, far, _scaled_tail(code, magnitude))
    twice = _exp_of_square(code, code.select(x < -9.4, -9.4, x), 1.0) * 2.0  # finite before it is doubled
    return code.select(x < 0.0, twice - tail, tail)


def erfinv(code: Code, x: IrValue) -> IrValue:
    """Within 4 ulps; infinite for 1 and -1, nan beyond."""
    magnitude = absolute(code, x)
    w = -(log1p(code, -magnitude) + log1p(code, magnitude))
    near = polynomial(code, w - 2.5, ERFINV_COEFFICIENTS)
    far = polynomial(code, code.intrinsic("sqrt", w) - 3.0, ERFINV_TAIL_COEFFICIENTS)
    y = code.select(w < 5.0, near, far) * x
    y = code.select(magnitude.equals(1.0), with_sign(code, code.constant(x.type, math.inf), x), y)
    return code.select(magnitude > 1.0, math.nan, y)
