"""The accuracy of transcendental functions on devices, in units in the last place (ulps)."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.op import REGISTRY
from tests.support.compare_elementwise import (
    SPECIAL_VALUES,
)
from tests.support.operands import NDArray, generator

ULPS = {
    "sqrt": 1, "rsqrt": 4, "reciprocal": 3, "exp": 2, "exp2": 2, "expm1": 3, "log": 2, "log2": 2, "log10": 3,
    "log1p": 4, "sin": 4, "cos": 4, "tan": 5, "asin": 4, "acos": 3, "atan": 4, "sinh": 3, "cosh": 3,
    "tanh": 3, "erf": 4, "erfc": 12, "sigmoid": 4, "erfinv": 4, "erfcx": 13, "ndtri": 6,
}  # fmt: skip


def ulps(got: NDArray, exact: NDArray) -> NDArray:
    """How many units in the last place results are off; beyond the largest float, as if it went on."""
    rounded = exact.astype(np.float32)
    unit = np.maximum(np.spacing(np.abs(rounded)).astype(np.float64), 2.0**-149)
    unit = np.where(np.isfinite(unit), unit, 2.0**104)
    wide = np.where(np.isinf(got), np.copysign(2.0**128, got), got.astype(np.float64))
    off = np.abs(wide - exact) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(exact))
    return np.where(same, 0, np.where(np.isnan(off), np.inf, off))


@pytest.mark.parametrize("name", ULPS)
def test_ulps(name: str, device: str) -> None:
    """Of random bits, and near the values that matter; numbers below the smallest normal one may be 0."""
    if device == "cpu":
        pytest.skip("NumPy's own functions")
    rng = generator(name, "ulps")
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = [rng.uniform(-spread, spread, 5000).astype(np.float32) for spread in (1, 2, 20, 100)]
    x = np.concatenate([bits, *near, rng.uniform(0.5, 1.5, 5000).astype(np.float32), SPECIAL_VALUES])
    x = x[~((np.abs(x) < 1.2e-38) & (x != 0))]
    with np.errstate(all="ignore"):
        exact = REGISTRY[name].body(x.astype(np.float64))
        got = REGISTRY[name](dl.tensor(x, device=device)).numpy()
        off = np.where((np.abs(exact) < 1.2e-38) & (np.abs(got) < 1.3e-38), 0, ulps(got, exact))
    worst = int(np.argmax(off))
    assert off[worst] <= ULPS[name], f"{name}({x[worst]!r}) is {got[worst]!r}, not {exact[worst]!r}"


def test_ulps_of_powers(device: str) -> None:
    rng = generator("pow", "ulps")
    x = np.exp2(rng.uniform(-100, 100, 20000)).astype(np.float32)
    x[:5000] = rng.uniform(0.5, 1.5, 5000).astype(np.float32)
    with np.errstate(all="ignore"):
        y = (rng.uniform(-140, 140, 20000) / np.log2(x)).astype(np.float32)
        exact = x.astype(np.float64) ** y.astype(np.float64)
        got = dl.pow(dl.tensor(x, device=device), dl.tensor(y, device=device)).numpy()
        off = np.where((np.abs(exact) < 1.2e-38) & (np.abs(got) < 1.3e-38), 0, ulps(got, exact))
    worst = int(np.argmax(off))
    assert off[worst] <= 4, f"{x[worst]!r} ** {y[worst]!r} is {got[worst]!r}, not {exact[worst]!r}"
