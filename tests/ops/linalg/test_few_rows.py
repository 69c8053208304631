"""Products of few rows, of which both operands lie along the sum, also with gaps between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.subcases import each

CASES = [  # rows, columns, terms
    (1, 5, 8), (2, 7, 12), (3, 9, 13), (8, 33, 64), (9, 4, 20), (1, 1, 1), (5, 1, 36), (1, 300, 4),
    (7, 2, 5003),
]  # fmt: skip


@each("case", CASES)
@pytest.mark.parametrize("gap", [0, 4, 5])
def test_products(case: tuple[int, int, int], gap: int, device: str) -> None:
    rows, columns, terms = case
    rng = np.random.default_rng(rows + columns + terms)
    x, w = (rng.standard_normal((n, terms + gap)).astype(np.float32) for n in (rows, columns))
    a, b = (dl.tensor(values, device=device)[:, gap:] for values in (x, w))
    expected: Any = x[:, gap:].astype(np.float64) @ w[:, gap:].T.astype(np.float64)
    bound = 4e-7 * (terms + 4) * 3
    np.testing.assert_allclose((a @ b.T).numpy(), expected, atol=bound)
    np.testing.assert_allclose((b @ a.T).numpy(), expected.T, atol=bound)
    np.testing.assert_allclose(dl.mv(b, a[0]).numpy(), expected[0], atol=bound)
    np.testing.assert_allclose((a[0] @ b.T).numpy(), expected[0], atol=bound)
    bias = rng.standard_normal(columns).astype(np.float32)
    linear = dl.nn.functional.linear(a, b, dl.tensor(bias, device=device))
    np.testing.assert_allclose(linear.numpy(), expected + bias, atol=bound)


@each("columns", [1, 7])
@pytest.mark.parametrize("rows", [(5, 1), (3,), (2, 3)])
def test_rows_that_are_repeated(rows: tuple[int, ...], columns: int, device: str) -> None:
    rng = np.random.default_rng(columns)
    x, w = (rng.standard_normal((n, 36)).astype(np.float32) for n in (1, columns))
    a, b = dl.tensor(x, device=device).expand(*rows, 36), dl.tensor(w, device=device)
    expected = np.broadcast_to(x, (*rows, 36)).astype(np.float64) @ w.T.astype(np.float64)
    np.testing.assert_allclose((a @ b.T).numpy(), expected, atol=5e-5)
    repeated = b[:1].expand(4, 36)
    np.testing.assert_allclose((a @ repeated.T).numpy(), expected[..., [0] * 4], atol=5e-5)
