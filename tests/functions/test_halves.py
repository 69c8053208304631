"""Functions composed of ops, of floats of 16 bits whose squares, products or sums leave their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.compare_torch import values
from tests.support.subcases import each

torch = pytest.importorskip("torch", reason="results are compared with PyTorch's in float64")

LARGE, TINY = values(4, 6) * 150, values(4, 6) * 1e-3
SQUARES = values(2, 3, 3) * 300
OPPOSITE = np.array([[300.0, -296.0], [-400.0, 410.0]], np.float32)

CASES: dict[str, tuple[Any, ...]] = {
    "normalize": (lambda m, x: m.nn.functional.normalize(x), LARGE),
    "normalize, tiny": (lambda m, x: m.nn.functional.normalize(x), TINY),
    "normalize, cubes": (lambda m, x: m.nn.functional.normalize(x, 3), LARGE),
    "cosine_similarity": (lambda m, x, y: m.nn.functional.cosine_similarity(x, y), LARGE, TINY),
    "asinh": (lambda m, x: m.asinh(x), LARGE * 10),
    "acosh": (lambda m, x: m.acosh(x.abs() + 260), LARGE),
    "addmm": (lambda m, x, y: m.addmm(x[:, :4], x, y.mT, beta=0.5, alpha=1e-3), LARGE, LARGE[::-1].copy()),
    "addmv": (lambda m, x: m.addmv(x[:, 0], x, x[0], alpha=1e-3), LARGE),
    "addr": (lambda m, x: m.addr(x, x[:, 0], x[1], beta=0, alpha=1e-3), LARGE),
    "baddbmm": (lambda m, x: m.baddbmm(x, x, x.mT, beta=2, alpha=3e-4), SQUARES),
    "addbmm": (lambda m, x: m.addbmm(x[0], x, x.mT, alpha=1e-4), SQUARES),
    "addbmm, cancelling": (
        lambda m, x: m.addbmm(x[0], m.stack([x[0], x[0]]), m.stack([x[1], -x[1]])),
        SQUARES,
    ),
    "vecdot": (lambda m, x, y: m.linalg.vecdot(x, y), OPPOSITE, np.abs(OPPOSITE[::-1])),
    "bilinear": (lambda m, x, y, w: m.nn.functional.bilinear(x, y, w), LARGE, TINY, values(5, 6, 6)),
    "embedding_bag": (
        lambda m, x, weights: m.nn.functional.embedding_bag(
            m.tensor([[0, 0], [3, 3]], device=x.device), x, mode="sum", per_sample_weights=weights
        ),
        LARGE,
        OPPOSITE,
    ),
    "matrix_exp": (lambda m, x: m.matrix_exp(x * 1e-3), SQUARES),
}


@pytest.mark.parametrize("name", CASES)
@each("dtype", ["float16", "bfloat16"])
def test_functions_round_once(device: str, name: str, dtype: str) -> None:
    function, *arrays = CASES[name]
    own = [dl.tensor(array, device=device).to(dtype) for array in arrays]
    wide = [torch.tensor(each.cpu().float().numpy(), dtype=torch.float64) for each in own]
    expected = function(torch, *wide).numpy()
    result = function(dl, *own)
    assert str(result.dtype) == dtype
    got = result.cpu().float().numpy()
    assert np.isfinite(got).all()
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    np.testing.assert_allclose(got, expected, rtol=2 * unit, atol=2 * unit * np.abs(expected).max())
