"""Reductions of views that repeat elements equal those of copies in which each element lies in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.reduce import repetition
from tests.support.operands import generator, numbers
from tests.support.subcases import each

TIMES = 5


@pytest.fixture(autouse=True)
def folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small views are folded like large ones."""
    monkeypatch.setattr(repetition, "FEWEST_FOLDED", 1)


FLOATS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, d: dl.sum(x, d),
    "sum keepdim": lambda x, d: dl.sum(x, d, keepdim=True),
    "mean": lambda x, d: dl.mean(x, d, keepdim=True),
    "amax": lambda x, d: dl.amax(x, d),
    "amin": lambda x, d: dl.amin(x, d),
    "prod": lambda x, d: dl.prod(x, d),
    "norm": lambda x, d: dl.norm(x, dim=d),
    "norm 1": lambda x, d: dl.norm(x, 1, dim=d),
    "norm 3": lambda x, d: dl.norm(x, 3, dim=d),
    "norm inf": lambda x, d: dl.norm(x, math.inf, dim=d),
    "logsumexp": lambda x, d: dl.logsumexp(x, d),
    "var": lambda x, d: dl.var(x, d),
    "std": lambda x, d: dl.std(x, d, correction=2),
    "nansum": lambda x, d: dl.nansum(x, d),
    "nanmean": lambda x, d: dl.nanmean(x, d),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "norm 0": lambda x, d: dl.norm(x, 0, dim=d),
    "count_nonzero": lambda x, d: dl.count_nonzero(x, d),
    "any": lambda x, d: dl.any(x, d),
    "all": lambda x, d: dl.all(x, d),
    "argmax": lambda x, d: dl.argmax(x, None if isinstance(d, tuple) else d),
    "argmin": lambda x, d: dl.argmin(x, None if isinstance(d, tuple) else d),
}
DIMS = (0, 1, 2, (0, 1), (0, 1, 2), None)


def repeated(array: Any, device: str) -> tuple[Any, Any]:
    """A view of shape (TIMES, 3, TIMES) of three elements, and a copy of it."""
    view = dl.tensor(array.reshape(1, 3, 1), device=device).expand(TIMES, 3, TIMES)
    return view, dl.tensor(np.broadcast_to(array.reshape(1, 3, 1), (TIMES, 3, TIMES)).copy(), device=device)


def compare(function: Callable[..., Any], view: Any, copy: Any, dim: Any, tolerance: float = 1e-5) -> None:
    result, expected = function(view, dim), function(copy, dim)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=tolerance, atol=1e-6)


@each("name", FLOATS | OTHERS)
def test_values(name: str, device: str) -> None:
    view, copy = repeated(numbers(generator(name), (3,)), device)
    for dim in DIMS:
        compare((FLOATS | OTHERS)[name], view, copy, dim)


@each("name", FLOATS | OTHERS)
def test_values_that_are_not_finite(name: str) -> None:
    for values in ([1, math.nan, 2], [math.inf, 1, -1], [math.inf, -math.inf, 0], [-0.0, 0.0, -1]):
        view, copy = repeated(np.array(values, np.float32), "cpu")
        for dim in DIMS:
            compare((FLOATS | OTHERS)[name], view, copy, dim)


@each("dtype", ["int8", "uint8", "int32", "int64", "bool", "float64", "float16"])
def test_dtypes(dtype: str, device: str) -> None:
    view, copy = repeated(np.array([101, 3, 0], dtype), device)
    names = ["sum", "sum keepdim", "prod", "amax", "amin", *OTHERS]
    for name in names if kind_of(np.dtype(dtype)) != "f" else FLOATS | OTHERS:
        if name != "norm 0" or kind_of(np.dtype(dtype)) == "f":
            for dim in (1, (0, 1), None):
                compare((FLOATS | OTHERS)[name], view, copy, dim, 2e-3 if dtype == "float16" else 1e-5)


@each("dtype", ["int8", "uint8", "int16", "int32", "bool"])
def test_integers_wrap_as_in_copies(dtype: str, device: str) -> None:
    view, copy = repeated(np.array([101, 3, 50], dtype), device)
    for function in (dl.sum, dl.prod):
        compare(lambda x, d, f=function: f(x, d, dtype=dtype), view, copy, None)


def test_small_factors_of_float16(device: str) -> None:
    """The number of copies is no float16."""
    x = dl.tensor([2.0**-12], dtype="float16", device=device).expand(2**20)
    assert x.sum().item() == 256.0
    assert x.norm(1).item() == 256.0
    assert x.mean().item() == 2.0**-12


@each("name", FLOATS)
def test_gradients(name: str, device: str) -> None:
    array = numbers(generator("gradients", name), (1, 3, 1))
    for dim in DIMS:
        grads = []
        for copied in (False, True):
            x = dl.tensor(array, device=device, requires_grad=True)
            wide = x.expand(TIMES, 3, TIMES)
            result = FLOATS[name](wide.clone() if copied else wide, dim)
            (result * result).sum().backward()
            assert x.grad is not None
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[0], grads[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_along_an_axis(name: str, device: str) -> None:
    for dim in (0, 1, 2):
        grads = []
        for copied in (False, True):
            x = dl.tensor([[[1.0], [3.0], [2.0]]], device=device, requires_grad=True)
            wide = x.expand(TIMES, 3, TIMES)
            values, indices = getattr(dl, name)(wide.clone() if copied else wide, dim)
            (values * values).sum().backward()
            assert x.grad is not None
            grads.append((values.tolist(), indices.tolist(), x.grad.tolist()))
        assert grads[0] == grads[1]


def test_products_of_matrices(device: str) -> None:
    left, right = dl.tensor([[1.0], [2.0]], device=device), dl.tensor([[3.0, 5.0]], device=device)
    for tensor in (left, right):
        tensor.requires_grad_()
    product = left.expand(2, TIMES) @ right.expand(TIMES, 2)
    assert product.tolist() == [[15.0, 25.0], [30.0, 50.0]]
    product.sum().backward()
    assert left.grad is not None
    assert right.grad is not None
    assert (left.grad.tolist(), right.grad.tolist()) == ([[40.0], [40.0]], [[15.0, 15.0]])
    vector = left[0].expand(TIMES)
    assert vector.dot(right[0, :1].expand(TIMES)).item() == 15.0
    halves = [t.detach().half() for t in (left, right)]
    assert (halves[0].expand(2, TIMES) @ halves[1].expand(TIMES, 2)).tolist() == product.tolist()


def test_small_views_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert repetition.repetition(dl.ones(1).expand(2**20), (0,)) is None
    found = repetition.repetition(dl.ones(1).expand(2**24), (0,))
    assert found is not None
    assert (found.elements.shape, found.times) == ((1,), 2**24)
    assert repetition.repetition(dl.ones(1, 1).expand(2**24, 2), (1,)) is not None
    assert repetition.repetition(dl.ones(1, 2).expand(2**24, 2), (1,)) is None
