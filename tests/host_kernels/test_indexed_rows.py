"""Compiled gathers and scatters of the CPU beside NumPy's and PyTorch's, and indices out of range."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")
INDEX_DTYPES = ("int64", "int32", "int16", "int8", "uint8")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def numbers(*shape: int, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(17)
    return (50 * rng.standard_normal(shape)).astype(dtype)


def places(size: int, *shape: int, dtype: str = "int64") -> Any:
    return np.random.default_rng(23).integers(0, size, shape).astype(dtype)


@pytest.mark.parametrize("index_dtype", INDEX_DTYPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "bool"])
def test_index_select(index_dtype: str, dtype: str, launches: HostLaunches) -> None:
    array, index = numbers(13, 7, 19, dtype=dtype), places(7, 31, dtype=index_dtype)
    x, i = dl.tensor(array, device="cpu"), dl.tensor(index, device="cpu")
    poison_memory(13 * 31 * 19 * array.itemsize)
    compiled, by_body = launches.both(lambda: dl.index_select(x, 1, i))
    np.testing.assert_array_equal(compiled, array[:, index])
    np.testing.assert_array_equal(by_body, compiled)


@pytest.mark.parametrize("view", [np.s_[:], np.s_[::2, 1:], np.s_[:, ::2]])
def test_rows_of_views(view: Any, launches: HostLaunches) -> None:
    array, index = numbers(20, 33), places(10, 3, 5)
    x, i = dl.tensor(array, device="cpu")[view], dl.tensor(index, device="cpu")
    np.testing.assert_array_equal(x[i].numpy(), array[view][index])
    turned = dl.tensor(np.ascontiguousarray(index.T), device="cpu").T
    np.testing.assert_array_equal(x[turned].numpy(), array[view][index])


def test_indices_from_the_end_and_into_several_axes(launches: HostLaunches) -> None:
    array = numbers(5, 11, 6)
    x = dl.tensor(array, device="cpu")
    first, second = places(5, 4, 1) - 5, places(11, 7) - 11
    i, j = dl.tensor(first, device="cpu"), dl.tensor(second, device="cpu")
    compiled, _ = launches.both(lambda: x[i, j])
    np.testing.assert_array_equal(compiled, array[first, second])
    compiled, _ = launches.both(lambda: x[i, :, dl.tensor(places(6, 4), device="cpu")])
    np.testing.assert_array_equal(compiled, array[first, :, places(6, 4)])


@pytest.mark.parametrize("index_dtype", INDEX_DTYPES)
@pytest.mark.parametrize("wrong", [-1, 9, 100])
def test_indices_out_of_range(index_dtype: str, wrong: int) -> None:
    index = places(9, 3, 40, dtype=index_dtype)
    index[1, 7] = index[2, 3] = np.array(wrong).astype(index_dtype)
    named = int(index[1, 7])
    x, i = dl.tensor(numbers(9, 4), device="cpu"), dl.tensor(index, device="cpu")
    with pytest.raises(ArgumentError, match=f"index {named} is out of range for an axis of size 9"):
        dl.nn.functional.embedding(i, x)
    with pytest.raises(ArgumentError, match=f"index {named} is out of range"):
        dl.gather(x, 0, dl.reshape(i, -1, 1))
    if named >= 0 or index_dtype == "uint8":
        with pytest.raises(ArgumentError, match=f"index {named} is out of range"):
            x[i]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_and_scatter(dim: int, launches: HostLaunches) -> None:
    array, rng = numbers(6, 7, 8), np.random.default_rng(2)
    index = rng.integers(0, array.shape[dim], (5, 6, 7))
    source = numbers(5, 7, 9)
    x, i, s = (dl.tensor(a, device="cpu") for a in (array, index, source))
    tx, ti, ts = map(torch.tensor, (array, index, source))
    compiled, by_body = launches.both(lambda: dl.gather(x, dim, i))
    np.testing.assert_array_equal(compiled, torch.gather(tx, dim, ti).numpy())
    np.testing.assert_array_equal(by_body, compiled)
    compiled, by_body = launches.both(lambda: dl.scatter_add(x, dim, i, s))
    np.testing.assert_allclose(compiled, torch.scatter_add(tx, dim, ti, ts).numpy(), 1e-5, 1e-4)
    np.testing.assert_allclose(by_body, compiled, 1e-5, 1e-4)
    # The last of equal indices counts; PyTorch leaves that open.
    compiled, by_body = launches.both(lambda: dl.scatter(x, dim, i, s))
    np.testing.assert_array_equal(by_body, compiled)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize(
    ("size", "inner", "count"), [(7, 5, 1), (1, 3, 40), (130, 129, 700), (2000, 1, 5000)]
)
def test_index_add(size: int, inner: int, count: int, dtype: str, launches: HostLaunches) -> None:
    array, source = numbers(size, inner, dtype=dtype), numbers(count, inner, dtype=dtype)
    index = places(size, count)
    x, s, i = (dl.tensor(a, device="cpu") for a in (array, source, index))
    poison_memory(size * inner * array.itemsize)
    compiled, by_body = launches.both(lambda: dl.index_add(x, 0, i, s))
    wide = torch.index_add(
        torch.tensor(array).double(), 0, torch.tensor(index), torch.tensor(source).double()
    ).numpy()
    if dtype == "float32":
        np.testing.assert_allclose(compiled, wide, 1e-5, 2e-3)
        np.testing.assert_allclose(by_body, wide, 1e-5, 2e-3)
    else:
        np.testing.assert_allclose(compiled, wide, 1e-12)
    if size > 1:
        turned, _ = launches.both(lambda: dl.index_add(x.T, 1, i, s.T))
        np.testing.assert_allclose(turned, compiled.T, 1e-5, 2e-3)


def test_gradients(launches: HostLaunches) -> None:
    table, index = numbers(30, 6), places(30, 4, 25)
    g = numbers(4, 25, 6)
    w: Any = dl.tensor(table, device="cpu").requires_grad_()
    t: Any = torch.tensor(table).requires_grad_()
    i, ti = dl.tensor(index, device="cpu"), torch.tensor(index)
    before = launches.count
    dl.nn.functional.embedding(i, w, padding_idx=3).backward(dl.tensor(g, device="cpu"))
    torch.nn.functional.embedding(ti, t, padding_idx=3).backward(torch.tensor(g))  # type: ignore[no-untyped-call]
    assert launches.count > before
    np.testing.assert_allclose(w.grad.numpy(), t.grad.numpy(), 1e-5, 1e-4)
    operands = numbers(30, 6), g.reshape(100, 6)
    x, s = (dl.tensor(array, device="cpu").requires_grad_() for array in operands)
    tx, ts = (cast(Any, torch.tensor(array).requires_grad_()) for array in operands)
    ours: Any = dl.index_add(x, 0, dl.reshape(i, -1), s)
    theirs: Any = torch.index_add(tx, 0, ti.reshape(-1), ts)
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    np.testing.assert_allclose(x.grad, tx.grad, 1e-5, 1e-2)
    np.testing.assert_allclose(s.grad, ts.grad, 1e-5, 1e-2)


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "sum"])
def test_scatter_reduce(reduce: Any, launches: HostLaunches) -> None:
    array, source, index = 1 + numbers(9, 5) / 500, 1 + numbers(40, 5) / 500, places(9, 40, 5)
    source[3, 2] = np.nan
    x, s, i = (dl.tensor(a, device="cpu") for a in (array, source, index))
    compiled, by_body = launches.both(lambda: dl.scatter_reduce(x, 0, i, s, reduce))
    expected = torch.scatter_reduce(
        torch.tensor(array), 0, torch.tensor(index), torch.tensor(source), reduce
    ).numpy()
    np.testing.assert_allclose(compiled, expected, 1e-5)
    np.testing.assert_allclose(by_body, expected, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "bool"])
def test_assignment(dtype: str, launches: HostLaunches) -> None:
    array, index = numbers(23, 9, dtype=dtype), places(23, 30)
    x = dl.tensor(array, device="cpu")
    value = numbers(30, 9, dtype=dtype)
    before = launches.count
    x[dl.tensor(index, device="cpu")] = dl.tensor(value, device="cpu")
    assert launches.count > before
    for place, row in zip(index, value, strict=True):
        array[place] = row
    np.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "mean", "sum"])
@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_reduce_with_gradients(
    dim: int, reduce: Any, include_self: bool, launches: HostLaunches
) -> None:
    rng = np.random.default_rng(31)
    array, source = (rng.integers(-3, 4, shape).astype("float32") for shape in ((9, 7), (40, 43)))
    index = rng.integers(0, array.shape[dim], (40, 5) if dim == 0 else (8, 41))
    if not include_self:
        array += (
            0.25  # PyTorch would share the gradient with an element that is left out, where it is as large
        )
    weight = rng.standard_normal(array.shape).astype("float32")
    ours: list[Any] = [dl.tensor(a, device="cpu").requires_grad_() for a in (array, source)]
    theirs: list[Any] = [torch.tensor(a).requires_grad_() for a in (array, source)]
    before = launches.count
    result = dl.scatter_reduce(
        ours[0], dim, dl.tensor(index, device="cpu"), ours[1], reduce, include_self=include_self
    )
    assert launches.count - before < 16  # and not several for each source of an element
    used = theirs[1][: index.shape[0], : index.shape[1]]  # PyTorch has no gradient of a larger source
    expected: Any = torch.scatter_reduce(
        theirs[0], dim, torch.tensor(index), used, reduce, include_self=include_self
    )
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), 1e-5, 1e-5)
    (result * dl.tensor(weight, device="cpu")).sum().backward()
    (expected * torch.tensor(weight)).sum().backward()
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our.grad.numpy(), their.grad.numpy(), 1e-5, 1e-5)


@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "mean"])
def test_second_derivatives_of_scatter_reduce(reduce: Any) -> None:
    rng = np.random.default_rng(37)
    array, source = rng.standard_normal((5, 3)), rng.standard_normal((11, 3))
    source[2] = 0
    index = rng.integers(0, 5, (11, 3))
    found: list[Any] = []
    for lib, i, leaves in (
        (dl, dl.tensor(index, device="cpu"), [dl.tensor(a, device="cpu") for a in (array, source)]),
        (torch, torch.tensor(index), [torch.tensor(a) for a in (array, source)]),
    ):
        for leaf in leaves:
            leaf.requires_grad_()
        result: Any = lib.scatter_reduce(leaves[0], 0, i, leaves[1], reduce)
        first = lib.autograd.grad((result**3).sum(), leaves, create_graph=True)
        second = lib.autograd.grad(sum((g * g).sum() for g in first), leaves)
        found.append([t.detach().numpy() for t in (*first, *second)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-9, 1e-9)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "sum"])
def test_scatter_reduce_of_integers(reduce: Any, include_self: bool) -> None:
    rng = np.random.default_rng(41)
    array, source, index = rng.integers(-5, 5, 13), rng.integers(-5, 5, 60), rng.integers(0, 11, 60)
    x, i, s = (dl.tensor(a, device="cpu") for a in (array, index, source))
    expected = torch.scatter_reduce(
        *(torch.tensor(array), 0, torch.tensor(index), torch.tensor(source), reduce),
        include_self=include_self,
    )
    ours = dl.scatter_reduce(x, 0, i, s, reduce, include_self=include_self)
    assert ours.dtype == "int64"
    np.testing.assert_array_equal(ours.numpy(), expected.numpy())


def test_index_put_that_accumulates(launches: HostLaunches) -> None:
    array, source = numbers(6, 7, 5), numbers(31, 5)
    first, second = places(6, 31) - 6, places(7, 31)
    x: Any
    s: Any
    tx: Any
    ts: Any
    x, s = (dl.tensor(a, device="cpu").requires_grad_() for a in (array, source))
    tx, ts = (torch.tensor(a).requires_grad_() for a in (array, source))
    before = launches.count
    ours = dl.index_put(x, tuple(dl.tensor(a, device="cpu") for a in (first, second)), s, accumulate=True)
    assert launches.count > before
    theirs: Any = torch.index_put(tx, (torch.tensor(first), torch.tensor(second)), ts, accumulate=True)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), 1e-5, 1e-4)
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    for our, their in ((x, tx), (s, ts)):
        assert our.grad is not None
        assert their.grad is not None
        np.testing.assert_allclose(our.grad.numpy(), their.grad.numpy(), 1e-5, 1e-3)


@pytest.mark.parametrize("columns", [1, 3, 7, 9])
@pytest.mark.parametrize("rows", [5, 2500])
@pytest.mark.parametrize("expands", [False, True])
def test_gather_by_narrow_indices(rows: int, columns: int, expands: bool, launches: HostLaunches) -> None:
    array, index = numbers(41, columns), places(41, rows, columns)
    if expands:
        index[:] = index[:, :1]
    x = dl.tensor(array, device="cpu")
    i = (
        dl.tensor(index[:, :1], device="cpu").expand(-1, columns)
        if expands
        else dl.tensor(index, device="cpu")
    )
    compiled, by_body = launches.both(lambda: dl.gather(x, 0, i))
    np.testing.assert_array_equal(compiled, np.take_along_axis(array, index, 0))
    np.testing.assert_array_equal(by_body, compiled)
    if not expands:
        index[3, columns - 1] = index[4, 0] = 41
        index[3, columns - 1] = 43
        with pytest.raises(ArgumentError, match="index 43 is out of range"):
            dl.gather(x, 0, dl.tensor(index, device="cpu"))
