"""Indexing, gather and scatter, and sorting compared with PyTorch: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from tests.support.compare_torch import TOLERANCE, check_against_torch, torch, values
from tests.support.numpy_bodies import device as device
from tests.support.operands import close, generator

F, TF = dl.nn.functional, torch.nn.functional


KEYS: dict[str, Callable[[Any], Any]] = {
    "list": lambda i: ([2, 0, 2],),
    "tensor": lambda i: (i([[1, 2], [-1, 0]]),),
    "second axis": lambda i: (slice(None), i([4, 0, 0, -1])),
    "last axis": lambda i: (..., i([1, 6, 1])),
    "two": lambda i: (i([0, 2]), i([1, 3])),
    "two that broadcast": lambda i: (i([[0], [2]]), i([1, 3, 4])),
    "two with a slice between": lambda i: (i([0, 2]), slice(1, 4), i([1, 3])),
    "an int and a list": lambda i: (0, slice(None), i([1, 2])),
    "a list behind None": lambda i: (None, i([1, 2]), slice(1, 3)),
    "mask of rows": lambda i: (i([True, False, True]),),
    "mask of two axes": lambda i: (i(np.arange(15).reshape(3, 5) % 2 == 0),),
    "mask of the last axis": lambda i: (..., i(np.arange(7) > 3)),
    "mask of everything": lambda i: (i(np.arange(105).reshape(3, 5, 7) % 3 == 0),),
    "mask and list": lambda i: (i([True, False, True]), i([1, 2])),
    "empty": lambda i: (i(np.zeros(0, np.int64)),),
    "no mask": lambda i: (i(np.zeros(3, bool)),),
    "three": lambda i: (i([0, 1]), i([0, 4]), i([6, 2])),
}


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
@pytest.mark.parametrize("name", KEYS)
def test_advanced_indexing_with_tensors(name: str, layout: str, device: str) -> None:
    key = KEYS[name]
    ours = key(lambda v: dl.tensor(np.asarray(v), device=device))
    theirs = key(lambda v: torch.from_numpy(np.asarray(v)))
    check_against_torch(device, lambda x: x[ours], values(3, 5, 7), g=lambda x: x[theirs], layout=layout)


@pytest.mark.parametrize("name", KEYS)
def test_advanced_indexing_with_arrays(name: str, device: str) -> None:
    key = KEYS[name](np.asarray)
    theirs = KEYS[name](lambda v: torch.from_numpy(np.asarray(v)))
    x = values(3, 5, 7)
    got = dl.tensor(x, device=device)[key if len(key) > 1 else key[0]]
    np.testing.assert_array_equal(got.numpy(), torch.from_numpy(x)[theirs].numpy())


@pytest.mark.parametrize("index", [[0, 2, 2, 1, 0], [], [1]], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_select_and_index_add(dim: int, index: list[int], device: str) -> None:
    ours = dl.tensor(np.array(index, np.int64), device=device)
    theirs = torch.tensor(index, dtype=torch.int64)
    check_against_torch(
        device,
        lambda x: x.index_select(dim, ours),
        values(3, 5, 7),
        g=lambda x: x.index_select(dim, theirs),
        layout="transposed",
    )
    source = values(*(len(index) if i == dim % 3 else s for i, s in enumerate((3, 5, 7))))
    check_against_torch(
        device,
        lambda x, y: x.index_add(dim, ours, y, alpha=2),
        values(3, 5, 7),
        source,
        g=lambda x, y: x.index_add(dim, theirs, y, alpha=2),
    )


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_and_scatter(dim: int, device: str) -> None:
    rng = generator("gather", dim)
    x, y = values(3, 5, 7), values(4, 5, 8)
    shape = tuple(6 if i == dim else s - 1 for i, s in enumerate(x.shape))
    index = rng.integers(0, x.shape[dim], shape)
    ours, theirs = dl.tensor(index, device=device), torch.from_numpy(index)
    check_against_torch(
        device, lambda x: x.gather(dim, ours), x, g=lambda x: x.gather(dim, theirs), layout="strided"
    )
    small = tuple(min(a, b) for a, b in zip(shape, y.shape, strict=True))
    index = rng.integers(0, x.shape[dim], small)
    ours, theirs = dl.tensor(index, device=device), torch.from_numpy(index)
    source = values(*small)
    check_against_torch(
        device,
        lambda x, y: x.scatter_add(dim, ours, y),
        x,
        source,
        g=lambda x, y: x.scatter_add(dim, theirs, y),
    )
    larger = dl.tensor(x, device=device).scatter_add(dim, ours, dl.tensor(y, device=device))
    expected = torch.from_numpy(x).scatter_add(dim, theirs, torch.from_numpy(y))
    close(larger.numpy().astype(np.float64), expected.numpy().astype(np.float64), TOLERANCE)
    line = np.arange(x.shape[dim]).reshape([-1 if i == dim else 1 for i in range(3)])
    once = rng.permuted(
        np.broadcast_to(line, x.shape), axis=dim
    )  # no index twice: PyTorch does not define which element stays
    once = np.ascontiguousarray(once[tuple(slice(0, s) for s in small)])
    ours, theirs = dl.tensor(once, device=device), torch.from_numpy(once)
    source = values(*once.shape)
    check_against_torch(
        device, lambda x, y: x.scatter(dim, ours, y), x, source, g=lambda x, y: x.scatter(dim, theirs, y)
    )
    check_against_torch(
        device, lambda x: x.scatter(dim, ours, 1.5), x, g=lambda x: x.scatter(dim, theirs, 1.5)
    )


def test_the_last_element_stays_where_an_index_occurs_twice(device: str) -> None:
    x = dl.zeros(3, 2, device=device)
    index = dl.tensor([[1, 0], [1, 0], [1, 2]], device=device)
    source = dl.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device=device)
    assert x.scatter(0, index, source).tolist() == [[0, 4], [5, 0], [0, 6]]
    x[[2, 2, 0]] = source
    assert x.tolist() == [[5, 6], [0, 0], [3, 4]]


def test_take_and_take_along_dim(device: str) -> None:
    index = np.array([[0, 104, -1], [3, 3, 50]])
    ours, theirs = dl.tensor(index, device=device), torch.from_numpy(index)
    check_against_torch(
        device, lambda x: x.take(ours), values(3, 5, 7), g=lambda x: x.take(theirs), layout="transposed"
    )
    along = np.array([[[0], [3], [1], [4]]]).transpose(0, 1, 2)
    ours, theirs = dl.tensor(along, device=device), torch.from_numpy(along)
    check_against_torch(
        device, lambda x: x.take_along_dim(ours, 1), values(3, 5, 7), g=lambda x: x.take_along_dim(theirs, 1)
    )
    flat = torch.tensor([3, 9])
    check_against_torch(
        device,
        lambda x: x.take_along_dim(dl.tensor([3, 9])),
        values(3, 5),
        g=lambda x: x.take_along_dim(flat),
    )
    narrow, wide = np.array([[-1, 0, -128]], "int8"), values(3, 200)
    check_against_torch(
        device,
        lambda x: x.take_along_dim(dl.tensor(narrow, device=device), 1),
        wide,
        g=lambda x: x.take_along_dim(torch.from_numpy(narrow.astype(np.int64)) % 200, 1),
    )


def test_masked_select_and_nonzero(device: str) -> None:
    mask = np.arange(7) % 3 == 1
    ours, theirs = dl.tensor(mask, device=device), torch.from_numpy(mask)
    check_against_torch(
        device, lambda x: x.masked_select(ours), values(3, 5, 7), g=lambda x: x.masked_select(theirs)
    )
    x = values(3, 5) * (np.arange(5) % 2)
    check_against_torch(device, lambda x: x.nonzero(), x.astype(np.float32))
    check_against_torch(device, lambda x: x.nonzero(as_tuple=True), x.astype(np.float32))


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding(padding_idx: int | None, device: str) -> None:
    index = np.array([[0, 2, 10], [10, 10, 3]])
    ours, theirs = dl.tensor(index, device=device), torch.from_numpy(index)
    check_against_torch(
        device,
        lambda w: F.embedding(ours, w, padding_idx),
        values(11, 5),
        g=lambda w: TF.embedding(theirs, w, padding_idx),
        layout="transposed",
    )


def test_the_gradient_of_a_large_embedding_is_deterministic(device: str) -> None:
    rng = np.random.default_rng(0)
    index, weight = rng.integers(0, 13, 5000), values(13, 7)
    seed = dl.tensor(rng.standard_normal((5000, 7)).astype(np.float32), device=device)
    gradients = []
    for _ in range(2):
        w = dl.tensor(weight, device=device, requires_grad=True)
        F.embedding(dl.tensor(index, device=device), w).backward(seed)
        gradients.append(w.grad.numpy())
    np.testing.assert_array_equal(gradients[0], gradients[1])
    sums = np.zeros((13, 7))
    np.add.at(sums, index, seed.numpy().astype(np.float64))
    close(gradients[0].astype(np.float64), sums, TOLERANCE)


def test_one_hot(device: str) -> None:
    for classes in (-1, 7):
        x = np.array([[0, 3], [5, 1]])
        check_against_torch(device, lambda x: F.one_hot(x, classes), x, g=lambda x: TF.one_hot(x, classes))  # noqa: B023


def test_int32_indices(device: str) -> None:
    index = dl.tensor(np.array([2, 0], np.int32), device=device)
    x = dl.tensor(values(3, 5), device=device)
    np.testing.assert_array_equal(x[index].numpy(), values(3, 5)[[2, 0]])
    np.testing.assert_array_equal(F.embedding(index, x).numpy(), values(3, 5)[[2, 0]])


# Order


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sort_argsort_and_topk(dim: int, descending: bool, device: str) -> None:
    x = np.random.default_rng(1).permutation(105).reshape(3, 5, 7).astype(np.float32)
    check_against_torch(device, lambda x: tuple(x.sort(dim, descending)), x, layout="transposed")
    check_against_torch(device, lambda x: x.argsort(dim, descending), x)
    check_against_torch(device, lambda x: tuple(x.topk(3, dim, not descending)), x)
    ties = np.array([3, 1, 3, np.nan, 2, 1, -np.inf], np.float32)
    check_against_torch(device, lambda x: tuple(x.sort(descending=descending, stable=True)), ties)


def test_unique_bincount_and_searchsorted(device: str) -> None:
    x = np.array([3, 1, 3, 0, 1, 1])
    check_against_torch(device, lambda x: x.unique(return_inverse=True, return_counts=True), x)
    check_against_torch(
        device,
        lambda x: dl.unique(x, dim=0),
        np.array([[1, 2], [0, 1], [1, 2]]),
        g=lambda x: torch.unique(x, dim=0),
    )
    check_against_torch(device, lambda x: x.bincount(minlength=6), x)
    steps = np.array([1.0, 2.0, 2.0, 5.0], np.float32)
    sought = np.array([[0.5, 2.0], [2.5, 9.0]], np.float32)
    for right in (False, True):
        got = dl.searchsorted(dl.tensor(steps, device=device), dl.tensor(sought, device=device), right=right)
        expected = torch.searchsorted(torch.from_numpy(steps), torch.from_numpy(sought), right=right)
        np.testing.assert_array_equal(got.numpy(), expected.numpy())
