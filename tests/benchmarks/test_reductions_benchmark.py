"""The atomic dot product of benchmarks/reductions.py against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from benchmarks.reductions import atomic_dot
from tests.conftest import need


@pytest.mark.vulkan
@pytest.mark.parametrize("size", [1, 127, 70_001])
def test_atomic_additions_give_the_same_sum(size: int) -> None:
    """Within rounding: their order is another one each time."""
    need("vulkan:0")
    rng = np.random.default_rng(size)
    x, y = (rng.uniform(0.5, 2, size).astype(np.float32) for _ in range(2))
    out = dl.full((), float("nan"), device="vulkan:0")
    atomic_dot(out, dl.from_numpy(x, "vulkan:0"), dl.from_numpy(y, "vulkan:0"))
    np.testing.assert_allclose(out.item(), x.astype(np.float64) @ y, rtol=1e-5)
