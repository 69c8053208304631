"""Conversion between dtypes, and copies of elements shorter than a word, by kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all import fallback
from dl4all.ops.core.dtypes import kind_of

DTYPES = ("int64", "int32", "int16", "int8", "uint8", "bool", "float32", "float64", "float16")
PAIRS = [
    f"{source} {target}"
    for source, target in itertools.permutations(DTYPES, 2)
    if (source, target) != ("float64", "float16")  # which the host rounds
]
SHORT = ("int16", "int8", "uint8", "bool", "float16")

INT64_CASES = (
    -(2**63),
    2**63 - 1,
    0,
    -1,
    2**53 + 1,
    2**54 + 6,
    2**24 + 1,
    -(2**24) - 3,
    2**62 + 2**37,
    2**32,
)
FLOAT_CASES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-42, -1e-310, 3.4028236e38)


def elements(dtype: str, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Elements of all sizes, and the hard ones."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.random(131) < 0.5
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        numbers = rng.integers(limits.min, limits.max, 131, dtype=kind, endpoint=True)
        if kind.itemsize == 8:
            numbers >>= rng.integers(0, 63, 131)
            numbers[: len(INT64_CASES)] = INT64_CASES
        return numbers
    bits = rng.integers(0, 2 ** (8 * kind.itemsize), 131, dtype=np.dtype(f"u{kind.itemsize}"), endpoint=False)
    numbers = bits.view(kind)
    with np.errstate(over="ignore"):
        numbers[::2] = (rng.standard_normal(66) * 10.0 ** rng.integers(-2, 12, 66)).astype(kind)
        numbers[: len(FLOAT_CASES)] = np.array(FLOAT_CASES).astype(kind)
    return numbers


@pytest.mark.parametrize("pair", PAIRS)
def test_conversions(pair: str, device: Any) -> None:
    source, target = pair.split()
    numbers = elements(source, np.random.default_rng(1))
    if kind_of(numbers.dtype) == "f" and np.dtype(target).kind in "iu":  # the rest is up to the processor
        limit = 2.0**63 if target == "int64" else 2.0**31
        wide = numbers.astype(np.float64)
        numbers[~(np.abs(wide) < limit)] = 7
        expected = numbers.astype(np.int64).astype(target)
    else:
        with np.errstate(all="ignore"):
            expected = numbers.astype(target)
    with fallback.policy("error"):
        got = dl.tensor(numbers, device=device)[3:].to(target).numpy()
    expected = expected[3:]
    np.testing.assert_array_equal(got, expected)
    if kind_of(expected.dtype) == "f":
        real = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(expected[real]))


@pytest.mark.parametrize("dtype", SHORT)
def test_copies_of_short_elements(dtype: str, device: Any) -> None:
    rng = np.random.default_rng(2)
    host = rng.integers(0, 100, (7, 13, 5)).astype(dtype)
    target = rng.integers(0, 100, (17, 29, 13)).astype(dtype)
    with fallback.policy("error"):
        x, y = dl.tensor(host, device=device), dl.tensor(target, device=device)
        np.testing.assert_array_equal(x.permute(2, 0, 1).contiguous().numpy(), host.transpose(2, 0, 1))
        np.testing.assert_array_equal(dl.flip(x, (1,)).numpy(), host[:, ::-1])
        np.testing.assert_array_equal(dl.cat([x, x[:2]], 0).numpy(), np.concatenate([host, host[:2]]))
        y[1:15:2, 2:28:2, 3:13:2] = x
        target[1:15:2, 2:28:2, 3:13:2] = host
        y[3:10, 1:14, 4:9] = x
        target[3:10, 1:14, 4:9] = host
        np.testing.assert_array_equal(y.numpy(), target)


@pytest.mark.parametrize("dtype", SHORT[:4])
def test_short_elements_by_index(dtype: str, device: Any) -> None:
    rng = np.random.default_rng(3)
    host = rng.integers(0, 100, (7, 5, 3)).astype(dtype)
    index = rng.integers(0, 5, 11)
    with fallback.policy("error"):
        x, i = dl.tensor(host, device=device), dl.tensor(index, device=device)
        np.testing.assert_array_equal(dl.index_select(x, 1, i).numpy(), host[:, index])
        np.testing.assert_array_equal(dl.tril(x, 1).numpy(), np.tril(host, 1))
        put = dl.ops.put_rows(x[0], x[1, :2], (4, 1)).numpy()
    expected = host[0].copy()
    expected[[4, 1]] = host[1, :2]
    np.testing.assert_array_equal(put, expected)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("count", [11, 2500])
def test_sums_of_integers_by_index(dtype: str, count: int, device: Any) -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(-(2**30), 2**30, (2, count, 3)).astype(dtype)
    if dtype == "int64":
        rows *= 2**20
    index = rng.integers(0, 4, count)
    with fallback.policy("error"):
        sums = dl.ops.take_rows_backward(dl.tensor(rows, device=device), tuple(index.tolist()), 4)
    expected = np.zeros((2, 4, 3), dtype)
    for sample, terms in zip(expected, rows, strict=True):
        np.add.at(sample, index, terms)
    np.testing.assert_array_equal(sums.numpy(), expected)
