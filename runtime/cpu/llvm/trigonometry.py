"""Trigonometric functions and their inverses, for float32 vectors of any number of lanes.

They are accurate within 5 ulps for every number. Polynomials: Moshier, Cephes mathematical library (1989).
Arguments are reduced as Cody and Waite do, Software Manual for the Elementary Functions (1980), chapter 8;
large ones, for which a vector takes another way, by Payne and Hanek, Radian reduction for trigonometric
functions, SIGNUM Newsletter 18 (1983).
"""

from __future__ import annotations

import math

from dl4all.runtime.cpu.llvm import provider
from dl4all.runtime.cpu.llvm.functions import (
    MAGNITUDE_BITS,
    ROUNDER,
    absolute,
    plus_product,
    polynomial,
    sign_bit,
    with_sign,
)
from dl4all.runtime.cpu.llvm.ir import Code, IrValue

SIN_COEFFICIENTS = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS_COEFFICIENTS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
TAN_COEFFICIENTS = (
    9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2, 5.34112807005e-2, 1.33387994085e-1,
    3.33331568548e-1,
)  # fmt: skip
ASIN_COEFFICIENTS = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
ATAN_COEFFICIENTS = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
HALF_PI_PARTS = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
"""The first two have so few bits that their products with integers up to 2^13 are exact."""

FUSED_HALF_PI_PARTS = (1.570796012878418, 3.1391647326017846e-7, 5.390302953474238e-15)
"""For processors that round ``a * b + c`` once: the rest is accurate for integers up to 45000."""

EXACT_LIMIT, FUSED_EXACT_LIMIT = 8192.0, 71476.0
SMALL_REST = 0.001
"""A rest below it may have lost its last bits where there are no fused products."""

TWO_OVER_PI_WORDS = (0, 0x28BE60DB, 0x9391054A, 0x7F09D5F4, 0x7D4D3770, 0x36D8A566, 0x4F10E410, 0)
"""The bits of 2 / pi, which start after 34 zeros."""

HALF_PI, PI = math.pi / 2, math.pi


def _reduced(code: Code, x: IrValue) -> tuple[IrValue, IrValue]:
    """rest and quadrant with x = quadrant * pi / 2 + rest, and the rest no more than pi / 4."""
    fused = provider.processor().fused
    shifted = plus_product(code, x, 2.0 / math.pi, ROUNDER)
    quadrants = shifted - ROUNDER
    rest = x
    for part in FUSED_HALF_PI_PARTS if fused else HALF_PI_PARTS:
        rest = plus_product(code, quadrants, -part, rest)
    magnitude = absolute(code, x)
    if fused:
        exact = magnitude > FUSED_EXACT_LIMIT
    else:
        near = (absolute(code, rest) < SMALL_REST) & quadrants.differs(0.0)
        exact = (magnitude > EXACT_LIMIT) | near
    kept_rest = code.variable(x.type, rest)
    kept_quadrant = code.variable(code.bits(x, "i32").type, code.bits(shifted, "i32"))
    with code.if_(code.any_of(exact)):
        exact_rest, exact_quadrant = _exactly_reduced(code, x)
        kept_rest.value = code.select(exact, exact_rest, rest)
        kept_quadrant.value = code.select(exact, exact_quadrant, code.bits(shifted, "i32"))
    return kept_rest.value, kept_quadrant.value


def _exactly_reduced(code: Code, x: IrValue) -> tuple[IrValue, IrValue]:
    """The same for any finite magnitude above pi / 4.

    x, as an integer times a power of 2, is multiplied by the part of 2 / pi that determines the quadrant and
    the 62 bits after it.
    """
    bits = code.bits(x, "i32") & MAGNITUDE_BITS
    significand = code.unsigned((bits & 0x7FFFFF) | 0x800000, "i64") << 8
    exponent = code.unsigned(bits >> 23, "i64") - 126
    word, shift = exponent >> 5, exponent & 31
    parts = []
    for place in range(3):  # 32 bits each, from `shift` on in two words
        pair = code.constant(word.type, 0)
        for first in range(5):
            high, low = TWO_OVER_PI_WORDS[first + place : first + place + 2]
            pair = code.select(word.equals(first), _signed(high << 32 | low), pair)
        parts.append(code.binary("lshr", pair << shift, 32))
    low_bits = code.binary("lshr", significand * parts[2], 32)
    product = significand * parts[1] + low_bits + ((significand * parts[0]) << 32)
    # Two bits of quadrant, then its fraction. From one half on, the next quadrant is the nearer one.
    quadrant = code.binary("lshr", product + (1 << 61), 62)
    fraction = code.convert(product << 2, "double")
    rest = code.convert(fraction * (HALF_PI * 2.0**-64), "float")
    negative = sign_bit(code, x)
    turns = code.convert(quadrant, "i32")
    return code.select(negative, -rest, rest), code.select(negative, -turns, turns)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _small_sin(code: Code, x: IrValue) -> IrValue:
    z = x * x
    y = plus_product(code, polynomial(code, z, SIN_COEFFICIENTS) * z, x, x)
    return with_sign(code, y, x)  # of -0


def _small_cos(code: Code, x: IrValue) -> IrValue:
    z = x * x
    return plus_product(code, polynomial(code, z, COS_COEFFICIENTS) * z, z, plus_product(code, z, -0.5, 1.0))


def sin(code: Code, x: IrValue) -> IrValue:
    """Within 4 ulps; nan for infinities."""
    return _shifted_sin(code, x, 0)


def cos(code: Code, x: IrValue) -> IrValue:
    """Within 4 ulps; nan for infinities."""
    return _shifted_sin(code, x, 1)


def _shifted_sin(code: Code, x: IrValue, shift: int) -> IrValue:
    """sin(x + shift * pi / 2)."""
    rest, quadrant = _reduced(code, x)
    if shift:
        quadrant = quadrant + shift
    y = code.select((quadrant & 1).equals(0), _small_sin(code, rest), _small_cos(code, rest))
    y = code.bits(code.bits(y, "i32") ^ ((quadrant & 2) << 30), "float")
    return code.select(absolute(code, x) < math.inf, y, math.nan)


def tan(code: Code, x: IrValue) -> IrValue:
    """Within 5 ulps; nan for infinities."""
    rest, quadrant = _reduced(code, x)
    z = rest * rest
    y = plus_product(code, polynomial(code, z, TAN_COEFFICIENTS) * z, rest, rest)
    y = code.select((quadrant & 1).equals(0), y, -1.0 / y)
    return code.select(absolute(code, x) < math.inf, y, math.nan)


def _small_asin(code: Code, x: IrValue) -> IrValue:
    """asin(x) for magnitudes up to 0.5."""
    z = x * x
    return plus_product(code, polynomial(code, z, ASIN_COEFFICIENTS) * z, x, x)


def asin(code: Code, x: IrValue) -> IrValue:
    """Within 4 ulps; nan beyond -1 and 1."""
    magnitude = absolute(code, x)
    large = magnitude > 0.5
    root = code.intrinsic("sqrt", (1.0 - magnitude) * 0.5)  # nan beyond 1
    y = _small_asin(code, code.select(large, root, magnitude))
    return with_sign(code, code.select(large, plus_product(code, y, -2.0, HALF_PI), y), x)


def acos(code: Code, x: IrValue) -> IrValue:
    """Within 3 ulps; nan beyond -1 and 1."""
    magnitude = absolute(code, x)
    large = magnitude > 0.5
    root = code.intrinsic("sqrt", (1.0 - magnitude) * 0.5)
    y = _small_asin(code, code.select(large, root, x))
    twice = y + y
    return code.select(large, code.select(x < 0.0, PI - twice, twice), HALF_PI - y)


def atan(code: Code, x: IrValue) -> IrValue:
    """Within 4 ulps."""
    return with_sign(code, _atan_of_magnitude(code, absolute(code, x)), x)


def _atan_of_magnitude(code: Code, x: IrValue) -> IrValue:
    steep, middle = x > 2.414213562, x > 0.4142135624
    above = code.select(steep, -1.0, code.select(middle, x - 1.0, x))
    below = code.select(steep, x, code.select(middle, x + 1.0, 1.0))
    start = code.select(steep, HALF_PI, code.select(middle, code.constant(x.type, HALF_PI / 2), 0.0))
    rest = above / below
    z = rest * rest
    return start + plus_product(code, polynomial(code, z, ATAN_COEFFICIENTS) * z, rest, rest)


def atan2(code: Code, y: IrValue, x: IrValue) -> IrValue:
    """The angle of the point (x, y), with the special cases of IEEE 754, within 4 ulps."""
    a, b = absolute(code, y), absolute(code, x)
    steep = a > b
    small, large = code.select(steep, b, a), code.select(steep, a, b)
    quotient = small / large
    quotient = code.select(a.equals(b), code.select(a.equals(0.0), a, 1.0), quotient)
    angle = _atan_of_magnitude(code, quotient)
    angle = code.select(steep, HALF_PI - angle, angle)
    angle = with_sign(code, code.select(sign_bit(code, x), PI - angle, angle), y)
    return code.select(code.compare("uno", "eq", x, y), math.nan, angle)
