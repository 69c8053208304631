"""topk against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import DTYPES, kind_of

torch = pytest.importorskip("torch", reason="outputs are compared with PyTorch's")


@pytest.mark.parametrize("dim", [-1, 0, 1, 2])
def test_values_and_indices(dim: int, device: str) -> None:
    x = np.random.default_rng(2).permutation(3 * 7 * 5).reshape(3, 7, 5).astype(np.float32)
    for k in (0, 1, 2, 3):
        values, indices = dl.topk(dl.tensor(x, device=device), k, dim)
        expected = torch.topk(torch.from_numpy(x), k, dim)
        np.testing.assert_array_equal(values.numpy(), expected.values.numpy())
        np.testing.assert_array_equal(indices.numpy(), expected.indices.numpy())
        assert (str(indices.dtype), str(values.device), str(indices.device)) == ("int64", device, device)


def test_ties_keep_their_order(device: str) -> None:
    x = np.array([3, 1, 3, 2, 3, 1, 2], np.float32)
    values, indices = dl.topk(dl.tensor(x, device=device), 7)
    order = torch.sort(torch.from_numpy(x), descending=True, stable=True)
    np.testing.assert_array_equal(values.numpy(), order.values.numpy())
    np.testing.assert_array_equal(indices.numpy(), order.indices.numpy())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype: np.dtype[Any], device: str) -> None:
    low, high = (0, 1) if kind_of(dtype) in "fb" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    x = np.array([1, low, high, 0], dtype)
    values, _ = dl.topk(dl.tensor(x, device=device), 4)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values.numpy(), np.sort(x)[::-1])


def test_special_values(device: str) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, 2], np.float32)
    values, indices = dl.topk(dl.tensor(x, device=device), 5)
    expected = torch.topk(torch.from_numpy(x), 5)
    np.testing.assert_array_equal(values.numpy(), expected.values.numpy())
    np.testing.assert_array_equal(indices.numpy(), expected.indices.numpy())


def test_transposed_input(device: str) -> None:
    x = np.random.default_rng(3).permutation(35).reshape(7, 5).astype(np.float32)
    values, indices = dl.topk(dl.tensor(x, device=device).T, 3, 1)
    assert values.is_contiguous()
    np.testing.assert_array_equal(np.take_along_axis(x.T, indices.numpy(), 1), values.numpy())


@pytest.mark.parametrize(
    ("k", "dim", "message"),
    [
        (6, 1, r"k must be from 0 to 5 for shape \(3, 5\), got 6"),
        (-1, 1, "got -1"),
        (1, 2, "axis 2 is out of range"),
    ],
)
def test_invalid_arguments(k: int, dim: int, message: str, device: str) -> None:
    with pytest.raises(ArgumentError, match=rf"\[topk\] {message}" if "axis" in message else message):
        dl.topk(dl.zeros(3, 5, device=device), k, dim)


def test_tensors_without_axes(device: str) -> None:
    """As in PyTorch they count as tensors with one axis of size 1."""
    x = dl.tensor(2.5, device=device)
    for values, indices in (x.topk(1), x.sort(), x.sort(descending=True), x.max(0)):
        assert (values.shape, indices.shape) == ((), ())
        assert (values.item(), indices.item()) == (2.5, 0)
    assert x.argsort().shape == x.flip(0).shape == x.squeeze(-1).shape == x.movedim(0, -1).shape == ()
    assert x.transpose(0, -1).shape == ()
    with pytest.raises(ArgumentError, match=r"\[topk\] k must be from 0 to 1"):
        x.topk(2)
