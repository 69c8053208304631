"""The accuracy of transcendental functions on devices, in units in the last place (ulps)."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.op import REGISTRY
from tests.support.compare_elementwise import SPECIAL_VALUES
from tests.support.operands import generator
from tests.support.ulps import ULPS, ulps


@pytest.mark.parametrize("name", ULPS)
def test_ulps(name: str, device: str) -> None:
    """Of random bits, and near the values that matter; numbers below the smallest normal one may be 0."""
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
