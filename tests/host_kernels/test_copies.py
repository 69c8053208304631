"""Compiled copies of the CPU: layouts, conversions, fills and concatenation, beside NumPy's."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import kind_of
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def numbers(shape: Any, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(11)
    return (100 * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("shape", [(3, 17, 33), (65, 1, 130), (16, 32, 8)])
def test_permuted_axes(shape: Any, order: Any, dtype: str, launches: HostLaunches) -> None:
    array = numbers(shape, dtype)
    x = dl.tensor(array, device="cpu").permute(*order)
    into = dl.tensor(numbers(x.shape, dtype), device="cpu")
    compiled, by_body = launches.both(lambda: into.copy_(x))
    np.testing.assert_array_equal(compiled, array.transpose(order))
    np.testing.assert_array_equal(by_body, compiled)


@pytest.mark.parametrize(
    "key", [np.s_[1::2], np.s_[:, ::3], np.s_[:, :, 2:9], np.s_[1, :, ::2], np.s_[..., 3]]
)
def test_parts_leave_the_rest_as_it_is(key: Any, launches: HostLaunches) -> None:
    array = numbers((11, 19, 23))  # small tensors are NumPy's
    target, source = dl.tensor(array, device="cpu"), numbers(array[key].shape) + 1
    before = launches.count
    target[key] = dl.tensor(source, device="cpu")
    assert launches.count > before
    array[key] = source
    np.testing.assert_array_equal(target.numpy(), array)


@pytest.mark.parametrize("shape", [(1, 7, 1), (5, 1, 9), (9,), ()])
def test_broadcast(shape: Any, launches: HostLaunches) -> None:
    source = numbers(shape)
    x, target = dl.tensor(source, device="cpu"), dl.tensor(numbers((5, 7, 9)), device="cpu")
    compiled, _ = launches.both(lambda: target.copy_(x))
    np.testing.assert_array_equal(compiled, np.broadcast_to(source, (5, 7, 9)))


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(DTYPES, 2)))
def test_conversions(source: str, target: str, launches: HostLaunches) -> None:
    array = numbers((37, 29), source)
    if kind_of(np.dtype(source)) == "f" and kind_of(np.dtype(target)) in "iu":  # others are undefined
        array = np.abs(array) % 100
    x = dl.tensor(array, device="cpu")
    for view, expected in ((x, array), (x.T, array.T), (x[1::2, 3:], array[1::2, 3:])):
        if (source, target) == ("float64", "float16"):  # rounded once, by NumPy
            result = view.to(target).numpy()
        else:
            result, _ = launches.both(functools.partial(view.to, target))
        np.testing.assert_array_equal(result, expected.astype(target))


def test_special_values_stay(launches: HostLaunches) -> None:
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 65519.9, 65520.0, 1e-8, 3.4e38], np.float32)
    x = dl.tensor(array, device="cpu")
    with np.errstate(over="ignore"):
        for dtype in ("float64", "float16", "bool"):
            compiled, _ = launches.both(functools.partial(x.to, dtype))
            np.testing.assert_array_equal(compiled, array.astype(dtype))
            np.testing.assert_array_equal(
                np.signbit(compiled), np.signbit(array.astype(dtype)) & (dtype != "bool")
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_fills(dtype: str, launches: HostLaunches) -> None:
    array = numbers((311, 117), dtype)  # NumPy fills fewer elements
    x = dl.tensor(array, device="cpu")
    before = launches.count
    x[1::2, 2:] = 1
    x[:, 0].fill_(0)
    assert launches.count >= before + 1
    array[1::2, 2:], array[:, 0] = 1, 0
    np.testing.assert_array_equal(x.numpy(), array)


def test_copies_of_what_they_read() -> None:
    array = numbers((9, 31))
    x = dl.tensor(array, device="cpu")
    x[1:] = x[:-1]
    array[1:] = array[:-1].copy()
    np.testing.assert_array_equal(x.numpy(), array)
    x[:, :9].copy_(x[:, :9].T)
    array[:, :9] = array[:, :9].T.copy()
    np.testing.assert_array_equal(x.numpy(), array)


def test_arrays_that_share_memory() -> None:
    memory = np.arange(100, dtype=np.float32)
    x, y = dl.from_numpy(memory[1:]), dl.from_numpy(memory[:-1])
    x.copy_(y)
    np.testing.assert_array_equal(memory, [0, *range(99)])


def test_memory_that_is_read_only() -> None:
    array = numbers((7,))
    array.flags.writeable = False
    x = dl.from_numpy(array)
    with pytest.raises(ArgumentError, match="read-only"):
        x.copy_(dl.ones(7, device="cpu"))
    with pytest.raises(ArgumentError, match="read-only"):
        x.fill_(2.0)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_concatenation(axis: int, dtype: str, launches: HostLaunches) -> None:
    shapes = [[4, 5, 6] for _ in range(5)]
    for size, shape in zip((1, 17, 0, 3, 64), shapes, strict=True):
        shape[axis] = size
    arrays = [numbers(shape, dtype) for shape in shapes]
    tensors = [dl.tensor(array, device="cpu") for array in arrays]
    compiled, by_body = launches.both(lambda: dl.cat(tensors, axis))
    np.testing.assert_array_equal(compiled, np.concatenate(arrays, axis))
    np.testing.assert_array_equal(by_body, compiled)


def test_concatenation_of_views(launches: HostLaunches) -> None:
    array = numbers((24, 40))
    x = dl.tensor(array, device="cpu")
    compiled, _ = launches.both(lambda: dl.cat([x[:, 3:9], x[:, 20:], x[:, :1]], 1))
    np.testing.assert_array_equal(compiled, np.concatenate([array[:, 3:9], array[:, 20:], array[:, :1]], 1))
    turned = dl.cat([x.T[:8], x.T[30:]], 0)
    np.testing.assert_array_equal(turned.numpy(), np.concatenate([array.T[:8], array.T[30:]]))
    stacked, _ = launches.both(lambda: dl.stack([x[i] for i in range(20)], 1))
    np.testing.assert_array_equal(stacked, array[:20].T)
