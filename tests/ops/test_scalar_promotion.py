"""A tensor without axes beside one with axes counts as a number does, as in PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl

DTYPES = ("float16", "float32", "float64", "int64", "int32", "int8", "uint8", "bool")
FUNCTIONS: dict[str, Any] = {
    "add": lambda t, x, a: x + a,
    "reflected": lambda t, x, a: a - x,
    "mul": lambda t, x, a: x * a,
    "divide": lambda t, x, a: a / (x + 1),
    "compare": lambda t, x, a: x < a,
    "maximum": lambda t, x, a: t.maximum(x, a),
    "where": lambda t, x, a: t.where(x > 0, x, a),
    "atan2": lambda t, x, a: t.atan2(x, a),
    "result_type": lambda t, x, a: t.zeros(1, dtype=t.result_type(x, a)),
}
REFUSED_BY_PYTORCH = {"reflected"}  # of bools


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes_and_values(name: str) -> None:
    values = np.random.default_rng(1).integers(0, 5, (3, 1, 5))
    for left, right in itertools.product(DTYPES, DTYPES):
        if name in REFUSED_BY_PYTORCH and "bool" in (left, right):
            continue
        for axes in (True, False):
            array = values if axes else values[0, 0, 0]
            results = []
            for t in (dl, torch):
                x = t.tensor(array.tolist(), dtype=getattr(t, left), device="cpu")
                a = t.tensor(3, dtype=getattr(t, right), device="cpu")
                results.append(FUNCTIONS[name](t, x, a))
            ours, theirs = results
            assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch."), (left, right, axes)
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-2 if "float16" in left else 1e-6)


def test_gradients(device: str) -> None:
    values = np.random.default_rng(2).standard_normal((5, 7)).astype(np.float32)
    gradients = []
    for t in (dl, torch):
        x = t.from_numpy(values.copy())
        x = x.to(device) if t is dl else x
        x.requires_grad_()
        a = t.tensor(1.25, dtype=t.float64, requires_grad=True, **({"device": device} if t is dl else {}))
        y = (x * a + a).sin() / (a - x * x).abs().add(1)
        assert str(y.dtype).endswith("float32")
        y.sum().backward()
        assert str(a.grad.dtype).endswith("float64")
        gradients.append([x.grad.cpu().numpy(), a.grad.cpu().numpy()])
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def test_written_into_a_tensor(device: str) -> None:
    x, a = dl.ones(3, 2, device=device), dl.tensor(1.5, dtype="float64", device=device)
    x.add_(a).mul_(dl.tensor(2, device=device))
    x /= a
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.cpu().numpy(), np.full((3, 2), 5 / 1.5, np.float32), rtol=1e-6)
    counts = dl.arange(3, dtype="int32", device=device)
    counts += dl.tensor(4, dtype="int64", device=device)
    assert (counts.dtype, counts.tolist()) == (np.int32, [4, 5, 6])
    with pytest.raises(dl.errors.Dl4allError, match="add_"):
        a.add_(x)


def test_compiled(device: str) -> None:
    a = dl.tensor(0.5, dtype="float64", device=device)

    @dl.compile
    def scaled(x: Any) -> Any:
        return (x * a).sum(1) + a

    for seed in range(3):
        x = dl.from_numpy(np.random.default_rng(seed).standard_normal((3, 5)).astype(np.float32)).to(device)
        result = scaled(x)
        assert result.dtype == np.float32
        np.testing.assert_allclose(
            result.cpu().numpy(), x.cpu().numpy().sum(1) * 0.5 + 0.5, rtol=1e-5, atol=1e-6
        )


def test_vmap() -> None:
    a = dl.tensor(2.0, dtype="float64", device="cpu")
    x = dl.rand(3, 5, device="cpu")
    result = dl.vmap(lambda row: row * a)(x)
    assert result.dtype == np.float32
    assert result.tolist() == (x * 2).tolist()
