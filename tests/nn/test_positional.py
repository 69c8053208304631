"""Positional encodings: against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, ShapeError
from tests.support.operands import generator, numbers


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("features", [1, 5, 8])
def test_sinusoidal(features: int, batch_first: bool, device: str) -> None:
    layer = dl.nn.SinusoidalPositionalEncoding(features, 50, batch_first=batch_first).to(device)
    x = numbers(generator(features), (3, 7, features))
    got = layer(dl.tensor(x, device=device)).numpy() - x
    for index in np.ndindex(x.shape):
        t, i = index[1 if batch_first else 0], index[2]
        angle = t / 10000 ** (2 * (i // 2) / features)
        assert abs(got[index] - (np.cos(angle) if i % 2 else np.sin(angle))) < 1e-6
    assert list(layer.parameters()) == []
    assert list(layer.state_dict()) == ["pe"]


def test_learned(device: str) -> None:
    layer = dl.nn.LearnedPositionalEncoding(5, 11).to(device)
    x = numbers(generator("learned"), (7, 2, 5))
    y = layer(dl.tensor(x, device=device))
    np.testing.assert_allclose(y.detach().numpy(), x + layer.weight.detach().numpy()[:7, None], rtol=1e-6)
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[2.0] * 5] * 7 + [[0.0] * 5] * 4


def test_rotary(device: str) -> None:
    """Lengths stay, and products depend on the distance only."""
    layer = dl.nn.RotaryPositionalEncoding(8)
    q, k = (numbers(generator(i), (8,)) for i in range(2))
    rows = [layer(dl.tensor(np.tile(v, (2, 13, 1)), device=device)).numpy()[1] for v in (q, k)]
    np.testing.assert_allclose(np.linalg.norm(rows[0], axis=-1), np.linalg.norm(q), rtol=1e-5)
    products = rows[0] @ rows[1].T
    for distance in range(-5, 6):
        line = np.diagonal(products, distance)
        np.testing.assert_allclose(line, line[0], rtol=1e-4, atol=1e-4)
    assert abs(products[0, 0] - q @ k) < 1e-5
    assert np.ptp([products[0, j] for j in range(13)]) > 0.1
    later = layer(dl.tensor(np.tile(q, (3, 1)), device=device), offset=4).numpy()
    np.testing.assert_allclose(later, rows[0][4:7], rtol=1e-5, atol=1e-6)


def test_rotary_derivatives() -> None:
    x = dl.tensor(numbers(generator("rotary"), (3, 4), "float64"), device="cpu").requires_grad_()
    assert dl.autograd.gradcheck(dl.nn.RotaryPositionalEncoding(4), (x,))


def test_dropout() -> None:
    layer = dl.nn.SinusoidalPositionalEncoding(4, dropout=0.5)
    dl.manual_seed(0)
    assert (layer(dl.ones(50, 3, 4, device="cpu")).numpy() == 0).mean() > 0.3
    assert (layer.eval()(dl.ones(50, 3, 4, device="cpu")).numpy() == 0).mean() < 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: dl.nn.SinusoidalPositionalEncoding(4, 2)(x), ShapeError, r"\[Sinus.*\] .* T up to 2"),
        (lambda x: dl.nn.LearnedPositionalEncoding(5, 9)(x), ShapeError, r"\[Learned.*\] .* with 5 features"),
        (lambda x: dl.nn.LearnedPositionalEncoding(0, 9), ArgumentError, r"\[Learned.*\] .* 0 features"),
        (lambda x: dl.nn.RotaryPositionalEncoding(3), ArgumentError, r"\[Rotary.*\] .* even .* got 3"),
        (lambda x: dl.nn.RotaryPositionalEncoding(6)(x), ShapeError, r"\[Rotary.*\] expected shape"),
    ],
)  # fmt: skip
def test_refusals(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(dl.zeros(3, 2, 4, device="cpu"))
