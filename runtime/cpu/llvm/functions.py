"""Functions of floats that LLVM has no instructions for: for float32 vectors of any number of lanes.

Each is accurate to the ulps that its docstring names, which tests/runtime/cpu/test_functions.py checks.
"""

from __future__ import annotations

from dl4all.runtime.cpu.llvm.ir import Code, Value

LOG2_E = 1.44269504088896341
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
EXP_COEFFICIENTS = (  # Cephes' expf
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip


def exp(code: Code, x: Value) -> Value:
    """e to the power of x, within 2 ulps; as Cephes' expf: 2^n times a polynomial of the rest.

    Results below the smallest normal number are 0.
    """
    low = code.intrinsic("maximum", x, code.constant(x.type, -87.33654))
    bounded = code.intrinsic("minimum", low, code.constant(x.type, 88.72283))
    n = code.intrinsic("roundeven", bounded * LOG2_E)
    rest = code.intrinsic("fmuladd", n, code.constant(x.type, -LN2_HIGH), bounded)
    rest = code.intrinsic("fmuladd", n, code.constant(x.type, -LN2_LOW), rest)
    y = code.constant(x.type, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        y = code.intrinsic("fmuladd", y, rest, code.constant(x.type, coefficient))
    y = code.intrinsic("fmuladd", y, rest * rest, rest) + 1.0
    whole = code.convert(n, "i32")
    power = code.bits((whole + 127) << 23, "float")
    result = code.select(x < -87.33654, code.constant(x.type, 0.0), y * power)
    return code.select(x > 88.72283, code.constant(x.type, float("inf")), result)
