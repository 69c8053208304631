"""How accurate transcendental functions are, in units in the last place (ulps)."""

from __future__ import annotations

import numpy as np

from tests.support.operands import NDArray

ULPS = {
    "sqrt": 1, "rsqrt": 4, "reciprocal": 3, "exp": 2, "exp2": 2, "expm1": 3, "log": 2, "log2": 2, "log10": 3,
    "log1p": 4, "sin": 4, "cos": 4, "tan": 5, "asin": 4, "acos": 3, "atan": 4, "sinh": 3, "cosh": 3,
    "tanh": 3, "erf": 4, "erfc": 12, "sigmoid": 4, "erfinv": 4, "erfcx": 13, "ndtri": 6,
}  # fmt: skip


def ulps(got: NDArray, exact: NDArray) -> NDArray:
    """How many units in the last place results are off; beyond the largest float, as if it went on."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
    unit = np.maximum(np.spacing(np.abs(rounded)).astype(np.float64), 2.0**-149)
    unit = np.where(np.isfinite(unit), unit, 2.0**104)
    with np.errstate(all="ignore"):
        wide = np.where(np.isinf(got), np.copysign(2.0**128, got), got.astype(np.float64))
        off = np.abs(wide - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    return np.where(same, 0, np.where(np.isnan(off), np.inf, off))
