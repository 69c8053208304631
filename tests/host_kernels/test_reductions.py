"""Compiled reductions of the CPU beside NumPy's and PyTorch's: axes, layouts, dtypes, digits, nan."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

import dl4all as dl
from dl4all.ops.core.dtypes import kind_of
from dl4all.runtime.cpu.llvm import provider
from tests.support.host_launches import HostLaunches, poison_memory

pytestmark = pytest.mark.skipif(not provider.available(), reason="there is no compiler")

CASES = [
    ((128, 257), 0), ((128, 257), 1), ((7, 13), None), ((1,), 0), ((), None), ((3, 1, 5), 1),
    ((8, 5, 7, 11), (0, 2, 3)), ((2, 3, 67), (0, 2)), ((70001,), None), ((100003, 3), 0),
    ((5, 3, 7, 2, 3), (1, 3)), ((33, 65, 17), 1), ((2, 40000), 1), ((1031, 130), (0, 1)), ((64, 10), 1),
]  # fmt: skip
NAMES = ("sum", "mean", "amax", "amin", "prod", "norm")


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> HostLaunches:
    return HostLaunches(monkeypatch)


def numbers(shape: Any, dtype: str = "float32", seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.4
    if kind_of(np.dtype(dtype)) in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape), dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("shape", "dim"), CASES)
def test_axes(name: str, shape: Any, dim: Any, launches: HostLaunches) -> None:
    array = numbers(shape)
    if name == "prod":
        array = np.exp(0.001 * array).astype(np.float32)
    x = dl.tensor(array, device="cpu")
    poison_memory(4 * array.size, 4 * array.size // (array.shape[0] if array.shape else 1))
    arguments = {"p": 2} if name == "norm" else {}
    compiled, by_body = launches.both(lambda: getattr(dl, name)(x, dim=dim, **arguments))
    assert (compiled.dtype, compiled.shape) == (by_body.dtype, by_body.shape)
    wide = torch.tensor(array.astype(np.float64))
    axes = tuple(range(array.ndim)) if dim is None else dim
    if name == "prod":
        expected = np.prod(array.astype(np.float64), axes)
    elif name == "norm":
        expected = torch.linalg.vector_norm(wide, 2, axes).numpy()
    else:
        expected = getattr(torch, name)(wide, axes).numpy()
    scale = 1 + np.sqrt(array.size / max(compiled.size, 1)) * (name == "sum")
    np.testing.assert_allclose(compiled, expected, 3e-6, 1e-6 * scale)


@pytest.mark.parametrize("name", ["sum", "amax", "argmax", "argmin"])
@pytest.mark.parametrize("view", ["transposed", "every other", "backwards", "expanded", "offset"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_layouts(name: str, view: str, dim: int, launches: HostLaunches) -> None:
    base = dl.tensor(numbers((13, 34, 18)), device="cpu")
    x = {
        "transposed": lambda: base.permute(2, 0, 1),
        "every other": lambda: base[1::2, ::2, 1::2],
        "backwards": lambda: dl.flip(base, (1,)),
        "expanded": lambda: base[:, :1].expand(13, 5, 18),
        "offset": lambda: base[1:, 3:, 5:],
    }[view]()
    compiled, by_body = launches.both(lambda: getattr(dl, name)(x, dim))
    np.testing.assert_allclose(compiled, by_body, 2e-6, 1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"])
@pytest.mark.parametrize("name", ["sum", "amax", "amin", "argmax", "count_nonzero", "prod"])
@pytest.mark.parametrize("dim", [0, 1])
def test_dtypes(dtype: str, name: str, dim: int, launches: HostLaunches) -> None:
    array = numbers((67, 45), dtype)
    if name == "prod":
        array = (array % 3 + 1).astype(dtype) if dtype != "bool" else array
        array = array[:12, :12]
    x = dl.tensor(array, device="cpu")
    compiled, by_body = launches.both(lambda: getattr(dl, name)(x, dim))
    assert compiled.dtype == by_body.dtype
    if kind_of(compiled.dtype) == "f":
        np.testing.assert_allclose(compiled, by_body, {2: 2e-3, 8: 1e-13}[compiled.itemsize])
    else:
        np.testing.assert_array_equal(compiled, by_body)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_sum_in_another_dtype(dtype: str, launches: HostLaunches) -> None:
    x = dl.tensor(numbers((41, 53), "int16"), device="cpu")
    compiled, by_body = launches.both(lambda: dl.sum(x, 1, dtype=dtype))
    assert compiled.dtype == by_body.dtype == dtype
    np.testing.assert_array_equal(compiled, by_body)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "argmax", "argmin", "norm"])
def test_special_values(special: float, dim: int, name: str, launches: HostLaunches) -> None:
    array = numbers((37, 83))
    array[[3, 30, 30], [80, 2, 70]] = special
    array[5] = -np.inf
    x = dl.tensor(array, device="cpu")
    arguments = {"p": 1} if name == "norm" else {}
    compiled, by_body = launches.both(lambda: getattr(dl, name)(x, dim=dim, **arguments))
    np.testing.assert_allclose(compiled, by_body, 2e-6, 1e-5)


@pytest.mark.parametrize("shape", [(50, 3), (3, 50), (7, 300)])
def test_the_first_of_equal_extremes_counts(shape: tuple[int, int], launches: HostLaunches) -> None:
    x = dl.tensor(numbers(shape, "int64") // 30, device="cpu")
    for name in ("argmax", "argmin"):
        for dim in (0, 1, None):
            compiled, by_body = launches.both(functools.partial(getattr(dl, name), x, dim))
            np.testing.assert_array_equal(compiled, by_body)


def test_long_sums_keep_their_digits(launches: HostLaunches) -> None:
    array = np.random.default_rng(5).random((3_000_017,), np.float32)
    x = dl.tensor(array, device="cpu")
    before = launches.count
    assert abs(dl.sum(x).item() / array.sum(dtype=np.float64) - 1) < 1e-7
    assert abs(dl.mean(x.expand(2, -1), 1)[1].item() / array.mean(dtype=np.float64) - 1) < 1e-7
    assert launches.count > before


def test_a_gradient_of_what_was_broadcast(launches: HostLaunches) -> None:
    g = dl.tensor(numbers((9, 31, 5)), device="cpu")
    for shape in ((5,), (31, 1), (9, 1, 5), (), (9, 31, 5)):
        compiled, by_body = launches.both(functools.partial(dl.ops.sum_to, g, shape))
        np.testing.assert_allclose(compiled, by_body, 1e-6, 1e-5)
