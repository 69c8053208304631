"""Exact remainders of divisions, and quotients that are rounded down, for vectors of any number of lanes."""

from __future__ import annotations

import math

from dl4all.runtime.cpu.llvm.functions import with_sign
from dl4all.runtime.cpu.llvm.ir import Code, IrValue
from dl4all.runtime.cpu.llvm.ir_types import element_of

QUOTIENT_BITS = 28
"""Of a quotient of two float32 that a float64 holds so that its whole part is right, and the rest exact."""

MOST_STEPS = 10
"""So many bits at a time, for the 277 bits of the largest quotient."""

EXPONENT_BITS, EXPONENT_SHIFT = 0x7FF, 52


def fmod(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """``a - b * trunc(a / b)`` of float32, exactly, with the sign of a; nan for a division by 0."""
    divisor = code.intrinsic("fabs", code.convert(b, "double"))
    dividend = code.intrinsic("fabs", code.convert(a, "double"))
    rest = code.variable(dividend.type, dividend)
    large = dividend >= divisor * 2.0**QUOTIENT_BITS
    with code.if_(code.any_of(large & (divisor > 0.0) & (dividend < math.inf))), code.loop(0, MOST_STEPS):
        excess = _exponent(code, rest.value) - _exponent(code, divisor) - (QUOTIENT_BITS - 1)
        excess = code.select(excess < 0, 0, excess)
        step = divisor * code.bits((excess + 1023) << EXPONENT_SHIFT, "double")
        rest.value = code.select(large, _rest(code, rest.value, step), rest.value)
    y = code.convert(_rest(code, rest.value, divisor), "float")
    y = code.select(code.convert(divisor, "float").equals(math.inf) & (dividend < math.inf), a, y)
    return with_sign(code, y, a)


def _exponent(code: Code, x: IrValue) -> IrValue:
    return (code.bits(x, "i64") >> EXPONENT_SHIFT) & EXPONENT_BITS


def _rest(code: Code, dividend: IrValue, divisor: IrValue) -> IrValue:
    """Of two magnitudes with a small quotient."""
    return dividend - code.intrinsic("trunc", dividend / divisor) * divisor


def remainder(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """The remainder of a division whose quotient is rounded down: it has the sign of b."""
    rest = fmod(code, a, b)
    return code.select(_is_moved(code, rest, b), rest + b, rest)


def floor_divide(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """``floor(a / b)`` of the exact quotient, even where the rounded quotient is an integer."""
    rest = fmod(code, a, b)
    quotient = (a - rest) / b
    quotient = code.select(code.intrinsic("fabs", b).equals(math.inf), 0.0, quotient)
    quotient = code.select(_is_moved(code, rest, b), quotient - 1.0, quotient)
    whole = code.intrinsic("floor", quotient)
    whole = code.select(quotient - whole > 0.5, whole + 1.0, whole)
    zero = with_sign(
        code, code.constant(a.type, 0.0), code.bits(code.bits(a, "i32") ^ code.bits(b, "i32"), "float")
    )
    whole = code.select(quotient.equals(0.0), zero, whole)
    whole = code.select(code.compare("uno", "eq", rest, rest), rest, whole)
    return code.select(b.equals(0.0), a / b, whole)


def _is_moved(code: Code, rest: IrValue, b: IrValue) -> IrValue:
    """Whether a rest is not 0, and its sign not that of the divisor."""
    return ((rest < 0.0) ^ (b < 0.0)) & ((rest < 0.0) | (rest > 0.0))


# Of integers: a division by 0 gives 0, and one by -1 does not overflow.


def _truncated_quotient(code: Code, a: IrValue, b: IrValue) -> IrValue:
    is_zero, is_opposite = b.equals(0), b.equals(-1)
    divisor = code.select(is_zero | is_opposite, 1, b)
    if element_of(a.type) == "i32":  # vectors have no division of integers; these quotients are exact
        quotient = code.convert(code.convert(a, "double") / code.convert(divisor, "double"), "i32")
    else:
        quotient = a // divisor
    return code.select(is_zero, 0, code.select(is_opposite, -a, quotient))


def integer_fmod(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """The remainder with the sign of a."""
    return code.select(b.equals(0), 0, a - _truncated_quotient(code, a, b) * b)


def integer_remainder(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """The remainder with the sign of b."""
    rest = integer_fmod(code, a, b)
    return code.select(_is_turned(rest, b), rest + b, rest)


def integer_floor_divide(code: Code, a: IrValue, b: IrValue) -> IrValue:
    """The quotient rounded down."""
    quotient, rest = _truncated_quotient(code, a, b), integer_fmod(code, a, b)
    return code.select(_is_turned(rest, b), quotient - 1, quotient)


def _is_turned(rest: IrValue, b: IrValue) -> IrValue:
    return ((rest < 0) ^ (b < 0)) & rest.differs(0)
