"""Random numbers have the distribution that they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl


def test_moments_and_ranges(device: str) -> None:
    x = dl.zeros(20000, device=device)
    assert abs(x.exponential_(2.0).numpy().mean() - 0.5) < 0.02
    assert abs(np.log(x.log_normal_(0.5, 0.25).numpy()).mean() - 0.5) < 0.02
    assert abs(np.median(x.cauchy_(3.0, 0.5).numpy()) - 3.0) < 0.05
    assert abs(x.geometric_(0.25).numpy().mean() - 4) < 0.2
    assert sorted(set(x.random_(-2, 3).numpy().tolist())) == [-2.0, -1.0, 0.0, 1.0, 2.0]
    assert set(dl.zeros(1000, dtype="int64", device=device).random_(3).numpy().tolist()) == {0, 1, 2}
    assert set(dl.randint_like(x, 2, 4).numpy().tolist()) == {2.0, 3.0}
    assert x.bernoulli(0.25).numpy().mean() == pytest.approx(0.25, abs=0.02)
