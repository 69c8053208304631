"""Exponentials, logarithms and powers, for float32 vectors of any number of lanes.

They are as accurate as the functions of ``shaders/include/math``, to the units in the last place (ulps) that
``tests/runtime/cpu/test_functions.py`` names; results below the smallest normal number are right, too. None
branches: selected is what was computed.

Polynomials: Moshier, Cephes mathematical library (1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.ir import Code, IrValue, Operand

LOG2_E = 1.44269504088896341
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # products of the first one with small integers are exact
EXP_COEFFICIENTS = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip
EXP2_COEFFICIENTS = (
    1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2,
    2.402264791363012e-1, 6.931472028550421e-1, 1.0,
)  # fmt: skip
SINH_COEFFICIENTS = (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)
TANH_COEFFICIENTS = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
LOG_COEFFICIENTS = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
LOG10_E_PARTS = (4.3359375e-1, 7.00731903251827651129e-4)
LOG10_2_PARTS = (3.0078125e-1, 2.48745663981195213739e-4)

ROUNDER = 1.5 * 2.0**23
"""Added to a float of less than 2^22, leaves the nearest integer in the last bits of the sum."""

ONE_BITS, SQRT_HALF_BITS, MAGNITUDE_BITS = 0x3F800000, 0x3F3504F3, 0x7FFFFFFF
SMALLEST_NORMAL = 2.0**-126


# Parts


def polynomial(code: Code, x: IrValue, coefficients: Sequence[float]) -> IrValue:
    """A polynomial by Horner's scheme, the coefficient of the highest power first."""
    y = code.constant(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        y = code.intrinsic("fmuladd", y, x, code.constant(x.type, coefficient))
    return y


def plus_product(code: Code, a: IrValue, b: Operand, c: Operand) -> IrValue:
    """``a * b + c``, rounded once if the processor can."""
    return code.intrinsic("fmuladd", a, code.as_value(a.type, b), code.as_value(a.type, c))


def product_error(code: Code, a: IrValue, b: IrValue, product: IrValue) -> IrValue:
    """The difference between the exact product and ``product``, the rounded ``a * b``."""
    if provider.processor().fused:
        return code.intrinsic("fma", a, b, -product)
    a_high, b_high = leading_bits(code, a), leading_bits(code, b)
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def leading_bits(code: Code, x: IrValue) -> IrValue:
    """x without the last 12 bits; products of two such numbers are exact."""
    return code.bits(code.bits(x, "i32") & -4096, "float")


def absolute(code: Code, x: IrValue) -> IrValue:
    return code.intrinsic("fabs", x)


def with_sign(code: Code, x: IrValue, sign: IrValue) -> IrValue:
    """The magnitude of x with the sign of another number."""
    return code.intrinsic("copysign", x, sign)


def sign_bit(code: Code, x: IrValue) -> IrValue:
    """Whether x is negative; true for -0, too."""
    return code.bits(x, "i32") < 0


def bounded(code: Code, x: IrValue, low: float, high: float) -> IrValue:
    """x, but no less than one number and no more than another; nan stays."""
    x = code.select(x < low, low, x)
    return code.select(x > high, high, x)


def rounded(code: Code, x: IrValue) -> tuple[IrValue, IrValue]:
    """The nearest integer of a float of less than 2^22, and the same plus a multiple of 2^22 as ``i32``."""
    shifted = x + ROUNDER
    return shifted - ROUNDER, code.bits(shifted, "i32")


def times_power_of_2(code: Code, x: IrValue, n: IrValue) -> IrValue:
    """x * 2^n for n as :func:`rounded` returns it, in two steps that overflow only if the result does."""
    first = n >> 1
    for part in (first, n - first):
        x = x * code.bits((part << 23) + ONE_BITS, "float")
    return x


def small_expm1(code: Code, x: IrValue) -> IrValue:
    """exp(x) - 1 for magnitudes up to log(2) / 2."""
    return plus_product(code, polynomial(code, x, EXP_COEFFICIENTS) * x, x, x)


def reduced_by_log2(code: Code, x: IrValue) -> tuple[IrValue, IrValue, IrValue]:
    """n, n as :func:`rounded` returns it, and the rest of x after n log(2)."""
    n, bits = rounded(code, x * LOG2_E)
    rest = plus_product(code, n, -LN2_HIGH, x)
    return n, bits, plus_product(code, n, -LN2_LOW, rest)


def split_exponent(code: Code, x: IrValue) -> tuple[IrValue, IrValue]:
    """m and e with x = (1 + m) * 2^e, 1 + m from sqrt(1/2) to sqrt(2), of finite numbers above 0."""
    tiny = x < SMALLEST_NORMAL
    bits = code.bits(code.select(tiny, x * 2.0**23, x), "i32") - SQRT_HALF_BITS
    m = code.bits((bits & 0x7FFFFF) + SQRT_HALF_BITS, "float") - 1.0
    e = code.convert(bits >> 23, "float")
    return m, e - code.select(tiny, code.constant(x.type, 23.0), 0.0)


def log1p_rest(code: Code, m: IrValue) -> IrValue:
    """log(1 + m) - m for m as :func:`split_exponent` returns it."""
    z = m * m
    return plus_product(code, polynomial(code, m, LOG_COEFFICIENTS) * m, z, z * -0.5)


def with_special_logarithms(code: Code, x: IrValue, y: IrValue) -> IrValue:
    """y, the logarithm of x; but -inf for 0, nan below, inf and nan for themselves."""
    y = code.select(x < math.inf, y, x)
    y = code.select(x < 0.0, math.nan, y)
    return code.select(x.equals(0.0), -math.inf, y)


# Functions


def exp(code: Code, x: IrValue) -> IrValue:
    """e to the power of x, within 2 ulps."""
    return _scaled_exp(code, x, 0)


def _scaled_exp(code: Code, x: IrValue, shift: int) -> IrValue:
    """exp(x) * 2^shift, without intermediate overflow."""
    _, n, rest = reduced_by_log2(code, bounded(code, x, -104.0, 90.0))
    if shift:
        n = n + shift
    return times_power_of_2(code, small_expm1(code, rest) + 1.0, n)


def exp_of_sum(code: Code, x: IrValue, rest: IrValue) -> IrValue:
    """exp(x + rest) for x from -104 to 88 and a small rest, which may have digits that the sum has not."""
    n, bits = rounded(code, (x + rest) * LOG2_E)
    rest = plus_product(code, n, -LN2_LOW, plus_product(code, n, -LN2_HIGH, x) + rest)
    return times_power_of_2(code, small_expm1(code, rest) + 1.0, bits)


def _normal_exp(code: Code, x: IrValue) -> IrValue:
    """exp(x) for x from -87 to 88."""
    _, n, rest = reduced_by_log2(code, x)
    return (small_expm1(code, rest) + 1.0) * code.bits((n << 23) + ONE_BITS, "float")


def exp2(code: Code, x: IrValue) -> IrValue:
    """2 to the power of x, within 2 ulps."""
    x = bounded(code, x, -151.0, 129.0)
    whole, n = rounded(code, x)
    return times_power_of_2(code, polynomial(code, x - whole, EXP2_COEFFICIENTS), n)


def expm1(code: Code, x: IrValue) -> IrValue:
    """exp(x) - 1, within 3 ulps."""
    _, n, rest = reduced_by_log2(code, bounded(code, x, -20.0, 90.0))
    inverse_power = code.bits(((-n) << 23) + ONE_BITS, "float")  # wrong from 2^127 on
    less = code.select(x > 60.0, 1.0, 1.0 - inverse_power)
    y = times_power_of_2(code, small_expm1(code, rest) + less, n)
    return code.select(x.equals(0.0), x, y)


def sinh(code: Code, x: IrValue) -> IrValue:
    """Within 3 ulps."""
    magnitude = absolute(code, x)
    z = x * x
    small = plus_product(code, polynomial(code, z, SINH_COEFFICIENTS) * z, x, x)
    half_exp = _scaled_exp(code, magnitude, -1)
    large = with_sign(code, half_exp - 0.25 / half_exp, x)
    return code.select(magnitude < 1.0, small, large)


def cosh(code: Code, x: IrValue) -> IrValue:
    """Within 3 ulps."""
    half_exp = _scaled_exp(code, absolute(code, x), -1)
    return half_exp + 0.25 / half_exp


def tanh(code: Code, x: IrValue) -> IrValue:
    """Within 3 ulps."""
    magnitude = absolute(code, x)
    twice = code.select(magnitude > 10.0, 20.0, magnitude + magnitude)  # from there on it is 1
    large = 1.0 - 2.0 / (_normal_exp(code, twice) + 1.0)
    z = x * x
    small = plus_product(code, polynomial(code, z, TANH_COEFFICIENTS) * z, magnitude, magnitude)
    return with_sign(code, code.select(magnitude < 0.625, small, large), x)


def sigmoid(code: Code, x: IrValue) -> IrValue:
    """1 / (1 + exp(-x)), within 4 ulps; the divisor stays between 1 and 2."""
    power = exp(code, -absolute(code, x))
    return code.select(x < 0.0, power, 1.0) / (power + 1.0)


def log(code: Code, x: IrValue) -> IrValue:
    """The natural logarithm, within 2 ulps."""
    m, e = split_exponent(code, x)
    return with_special_logarithms(code, x, _log_of_parts(code, m, e))


def _log_of_parts(code: Code, m: IrValue, e: IrValue) -> IrValue:
    y = plus_product(code, e, LN2_LOW, log1p_rest(code, m))
    return plus_product(code, e, LN2_HIGH, m + y)


def log2(code: Code, x: IrValue) -> IrValue:
    """The logarithm to the base 2, within 2 ulps."""
    m, e = split_exponent(code, x)
    rest = log1p_rest(code, m)
    y = plus_product(code, m, LOG2_E - 1.0, rest * (LOG2_E - 1.0))
    return with_special_logarithms(code, x, ((y + rest) + m) + e)


def log10(code: Code, x: IrValue) -> IrValue:
    """The logarithm to the base 10, within 3 ulps."""
    m, e = split_exponent(code, x)
    rest = log1p_rest(code, m)
    y = (m + rest) * LOG10_E_PARTS[1]
    for part, factor in ((rest, LOG10_E_PARTS[0]), (m, LOG10_E_PARTS[0]), (e, LOG10_2_PARTS[1])):
        y = plus_product(code, part, factor, y)
    return with_special_logarithms(code, x, plus_product(code, e, LOG10_2_PARTS[0], y))


def log1p(code: Code, x: IrValue) -> IrValue:
    """log(1 + x), within 4 ulps."""
    total = x + 1.0
    m, e = split_exponent(code, total)
    small = (x > -0.2928) & (x < 0.4142)
    y = _log_of_parts(code, code.select(small, x, m), code.select(small, 0.0, e))
    return code.select(x.equals(0.0), x, with_special_logarithms(code, total, y))


def pow(code: Code, x: IrValue, y: IrValue) -> IrValue:
    """x to the power of y, with the special cases of IEEE 754, within 2 ulps.

    Squares and cubes, where all lanes ask for them, are products.
    """
    square = x * x
    result = code.variable(x.type, code.select(y.equals(3.0), square * x, square))
    with code.if_(code.any_of(y.differs(2.0) & y.differs(3.0))):
        result.value = _general_pow(code, x, y)
    return result.value


def _general_pow(code: Code, x: IrValue, y: IrValue) -> IrValue:
    """By way of the logarithm in float64."""
    magnitude = absolute(code, x)
    m, e = split_exponent(code, magnitude)
    wide = code.convert(m, "double")
    s = wide / (wide + 2.0)
    # 2 atanh(s) / log(2) is the logarithm to the base 2 of (1 + s) / (1 - s).
    series = polynomial(code, s * s, [2.0 * LOG2_E / k for k in range(15, 0, -2)])
    logarithm = plus_product(code, s, series, code.convert(e, "double"))
    logarithm = code.select(magnitude.equals(0.0), -math.inf, logarithm)
    logarithm = code.select(magnitude < math.inf, logarithm, code.convert(magnitude, "double"))
    product = logarithm * code.convert(y, "double")
    product = code.select(product < -151.0, -151.0, product)
    product = code.select(product > 129.0, 129.0, product)
    whole, n = rounded(code, code.convert(product, "float"))
    rest = code.convert(product - code.convert(whole, "double"), "float")
    power = times_power_of_2(code, polynomial(code, rest, EXP2_COEFFICIENTS), n)

    is_integer = code.intrinsic("floor", y).equals(y)
    half = y * 0.5
    is_odd = is_integer & code.intrinsic("floor", half).differs(half)
    power = code.select(is_odd & sign_bit(code, x), -power, power)
    undefined = (x < 0.0) & ~is_integer & magnitude.differs(math.inf)
    power = code.select(undefined, math.nan, power)
    is_one = (magnitude.equals(1.0) & absolute(code, y).equals(math.inf)) | x.equals(1.0) | y.equals(0.0)
    return code.select(is_one, 1.0, power)
