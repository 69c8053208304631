"""Regular numbers, and tensors like another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, Dl4allError, DTypeError, GradientError, ShapeError
from dl4all.ops.core.dtypes import DTYPES

torch = pytest.importorskip("torch", reason="values and defaults are compared with PyTorch's")


@pytest.mark.parametrize(
    "arguments",
    [(5,), (2, 7), (7, 2, -2), (0.0, 1.0, 0.25), (1, 2, 0.3), (0,), (5.0,), (3, 3), (-3, 4, 3), (2.5,)],
    ids=str,
)
def test_arange(arguments: tuple[Any, ...], device: str) -> None:
    got, expected = dl.arange(*arguments, device=device), torch.arange(*arguments)
    assert (got.shape, f"torch.{got.dtype}") == (tuple(expected.shape), str(expected.dtype))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)
    assert dl.arange(3, dtype="float32", device=device).dtype == np.float32


@pytest.mark.parametrize("name", ["linspace", "logspace"])
@pytest.mark.parametrize("arguments", [(0, 1, 5), (3, -2, 7), (2, 2, 3), (1, 9, 1), (1, 9, 0)], ids=str)
def test_spaces(name: str, arguments: tuple[Any, ...], device: str) -> None:
    got, expected = getattr(dl, name)(*arguments, device=device), getattr(torch, name)(*arguments)
    assert (got.shape, f"torch.{got.dtype}") == (tuple(expected.shape), str(expected.dtype))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(3,), (2, 5), (5, 2), (0, 3), (1, 1)], ids=str)
def test_eye(sizes: tuple[int, ...], device: str) -> None:
    for dtype in ("float32", "int64", "bool"):
        np.testing.assert_array_equal(
            dl.eye(*sizes, dtype=dtype, device=device).numpy(), np.eye(sizes[0], sizes[-1]).astype(dtype)
        )


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing: str, device: str) -> None:
    vectors = [np.arange(n, dtype=np.float32) for n in (2, 3, 5)]
    for count in (1, 2, 3):
        got = dl.meshgrid([dl.tensor(v, device=device) for v in vectors[:count]], indexing=indexing)
        expected = torch.meshgrid([torch.from_numpy(v) for v in vectors[:count]], indexing=indexing)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fills(dtype: np.dtype[Any], device: str) -> None:
    for shape in ((), (1,), (3, 5), (0, 2), (7,)):
        for value in (0, 1, 2):
            made = dl.full(shape, value, dtype=dtype, device=device)
            assert made.dtype == dtype
            np.testing.assert_array_equal(made.numpy(), np.full(shape, value, dtype))
        np.testing.assert_array_equal(
            dl.zeros(shape, dtype=dtype, device=device).numpy(), np.zeros(shape, dtype)
        )
        np.testing.assert_array_equal(
            dl.ones(shape, dtype=dtype, device=device).numpy(), np.ones(shape, dtype)
        )


def test_like_another_one(device: str) -> None:
    x = dl.tensor(np.ones((2, 3), np.int32), device=device)
    for make, value in ((dl.zeros_like, 0), (dl.ones_like, 1), (lambda x, **k: dl.full_like(x, 7, **k), 7)):
        made = make(x)
        assert (made.shape, made.dtype, made.device) == (x.shape, x.dtype, x.device)
        assert made.tolist() == [[value] * 3] * 2
        other = make(x, dtype="float32", device="cpu")
        assert (str(other.dtype), str(other.device)) == ("float32", "cpu")
    assert dl.empty_like(x).shape == (2, 3)
    y = dl.zeros(200, 3, device=device)
    assert 0.4 < dl.rand_like(y).numpy().mean() < 0.6
    assert abs(dl.randn_like(y).numpy().mean()) < 0.2
    assert dl.rand_like(y).device is y.device


def test_beside_another_one(device: str) -> None:
    x = dl.tensor(np.ones((2, 3), np.int64), device=device)
    assert x.new_zeros(2, 2).tolist() == [[0, 0], [0, 0]]
    assert x.new_ones((3,)).tolist() == [1, 1, 1]
    assert x.new_full((2,), 5, dtype="float32").tolist() == [5, 5]
    assert x.new_empty(4).shape == (4,)
    assert x.new_zeros(1).dtype == np.int64
    assert x.new_zeros(1).device is x.device
    assert x.new_ones(size=(2, 1)).tolist() == [[1], [1]]
    for made in (
        x.new_empty(2, dtype="float32", requires_grad=True),
        x.new_zeros(2, dtype="float32", requires_grad=True),
        x.new_ones(2, dtype="float32", requires_grad=True),
        x.new_full((2,), 0.5, dtype="float32", requires_grad=True),
    ):
        assert made.is_leaf
        assert made.requires_grad


def test_requires_grad(device: str) -> None:
    makes: list[Callable[..., dl.Tensor]] = [
        lambda **k: dl.zeros(2, **k), lambda **k: dl.ones(2, **k), lambda **k: dl.full((2,), 1.0, **k),
        lambda **k: dl.empty(2, **k), lambda **k: dl.rand(2, **k), lambda **k: dl.randn(2, **k),
        lambda **k: dl.eye(2, **k),
        lambda **k: dl.tensor([1.0], **k), lambda **k: dl.arange(2.0, **k),
        lambda **k: dl.linspace(0, 1, 2, **k),
        lambda **k: dl.zeros_like(dl.ones(2, device=device), **k),
    ]  # fmt: skip
    for make in makes:
        assert make(device=device, requires_grad=True).requires_grad
        assert not make(device=device).requires_grad
    with pytest.raises(GradientError, match="only floats have gradients"):
        dl.arange(3, device=device, requires_grad=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: dl.arange(0, 3, -1), ArgumentError, r"\[arange\] step -1 does not lead from 0 to 3"),
        (lambda: dl.arange(0, 3, 0), ArgumentError, r"\[arange\] step 0"),
        (lambda: dl.linspace(0, 1, -1), ArgumentError, r"\[linspace\] the number of steps"),
        (
            lambda: dl.meshgrid(dl.ones(2, 2)),
            ShapeError,
            r"\[meshgrid\] expected vectors, got shape \(2, 2\)",
        ),
        (lambda: dl.meshgrid(dl.ones(2), indexing="yx"), ArgumentError, r"\[meshgrid\] the indexing"),
        (lambda: dl.full((2,), cast(Any, [1.0])), DTypeError, r"\[full\] expected a number, got list"),
        (lambda: dl.eye(-1), ArgumentError, r"\[zeros\] sizes must be at least 0"),
    ],
)
def test_refusals(make: Any, error: type[Dl4allError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
