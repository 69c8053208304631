"""Copies between strided tensors, aligned for vector loads and not."""

from __future__ import annotations

from typing import Any

import numpy as np

import dl4all as dl
from dl4all.scheduler import fallback
from tests.support.operands import generator, numbers
from tests.support.subcases import each

DTYPES = ("float32", "int32", "float64", "int64")
TRANSPOSED = (*DTYPES, "float16", "int8", "bool")


@each("dtype", DTYPES)
@each(
    "key",
    [(slice(0, 16),), (slice(4, 12),), (slice(4, 11),), (slice(2, 10),), (slice(1, 13),), (slice(0, 8, 2),)],
)
def test_slices_of_a_vector(dtype: str, key: Any, device: str) -> None:
    _check((16,), key, dtype, device)


@each("dtype", DTYPES)
@each("rows", [slice(0, 3), slice(1, 4)])
@each("columns", [slice(0, 8), slice(4, 12), slice(2, 6), slice(1, 9), slice(0, 6), slice(0, 12, 2)])
def test_slices_of_a_matrix(dtype: str, rows: slice, columns: slice, device: str) -> None:
    _check((5, 12), (rows, columns), dtype, device)


@each("dtype", DTYPES)
@each(
    "key", [(slice(0, 2), slice(1, 4), slice(1, 3), slice(0, 2), part) for part in (slice(4, 8), slice(3, 7))]
)
def test_slices_of_many_axes(dtype: str, key: Any, device: str) -> None:
    _check((3, 4, 3, 3, 12), key, dtype, device)


@each("dtype", TRANSPOSED)
@each(
    "shape, order",
    [
        ((8, 12), (1, 0)),
        ((132, 20), (1, 0)),
        ((7, 12), (1, 0)),
        ((8, 13), (1, 0)),
        ((3, 8, 12), (0, 2, 1)),
        ((8, 3, 12), (2, 1, 0)),
        ((2, 8, 3, 12), (0, 3, 2, 1)),
        ((3, 8, 5, 12), (2, 0, 3, 1)),
        ((2, 3, 5, 8, 12), (2, 0, 1, 4, 3)),
        ((2, 3, 5, 8, 12), (2, 1, 0, 4, 3)),
        ((2, 3, 5, 7, 12), (2, 0, 3, 1, 4)),
        ((2, 3, 2, 3, 2, 3, 2, 4), (6, 4, 2, 0, 5, 3, 1, 7)),
    ],
)
def test_permuted_axes(dtype: str, shape: tuple[int, ...], order: tuple[int, ...], device: str) -> None:
    array = numbers(generator(shape), shape, dtype)
    permuted = dl.tensor(array, device=device).permute(*order)
    for copied in (permuted.contiguous(), permuted.clone(), dl.zeros_like(permuted).copy_(permuted)):
        np.testing.assert_array_equal(copied.numpy(), array.transpose(order))


@each("dtype", TRANSPOSED)
def test_transposed_slices(dtype: str, device: str) -> None:
    """Source and target start at multiples of four elements and elsewhere."""
    array, background = numbers(generator(), (24, 32), dtype), numbers(generator(1), (40, 44), dtype)
    for first, second, to in ((4, 8, 4), (0, 1, 4), (4, 4, 3), (1, 0, 0)):
        target, expected = dl.tensor(background, device=device), background.copy()
        part = dl.tensor(array, device=device)[first : first + 8, second : second + 12]
        target[4:16, to : to + 8].copy_(part.T)
        expected[4:16, to : to + 8] = array[first : first + 8, second : second + 12].T
        np.testing.assert_array_equal(target.numpy(), expected)


def _check(shape: tuple[int, ...], key: Any, dtype: str, device: str) -> None:
    """Copies out of a slice and into it."""
    array, background = (numbers(generator(shape, seed), shape, dtype) for seed in range(2))
    source, target, expected = (
        dl.tensor(array, device=device),
        dl.tensor(background, device=device),
        background.copy(),
    )
    np.testing.assert_array_equal(source[key].contiguous().numpy(), array[key])
    target[key].copy_(source[key])
    expected[key] = array[key]
    np.testing.assert_array_equal(target.numpy(), expected)
    new = numbers(generator(key), array[key].shape, dtype)
    target[key].copy_(dl.tensor(new, device=device))
    expected[key] = new
    np.testing.assert_array_equal(target.numpy(), expected)


@each("dtype", ["int16", "int8"])
def test_copies_of_short_integers_stay_on_the_device(dtype: str, device: str) -> None:
    array = np.arange(-30, 30, dtype=dtype).reshape(4, 15)
    x = dl.tensor(array, device=device)
    with fallback.policy("error"):
        np.testing.assert_array_equal(x.clone().numpy(), array)
        np.testing.assert_array_equal(x[1:, ::2].T.contiguous().numpy(), array[1:, ::2].T)


@each("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"])
@each("shape", [(5, 7), (311, 117)])
def test_fills(dtype: str, shape: tuple[int, int], device: str) -> None:
    """Few elements and many, numbers that are rounded, to infinity or zero too, whatever NumPy raises."""
    array = numbers(generator(), shape, dtype)
    whole = [3, 0, 127, True, 2.75]
    floats = [-1, -0.0, 1e-40, -1e-300, 1e39, 1e300, 65520.0, 2**24 + 1, 10**30, float("nan"), float("-inf")]
    for value in whole + (floats if "float" in dtype else []):
        x = dl.tensor(array, device=device)
        with np.errstate(all="raise"):
            x[1:, ::2].fill_(value)
            x[0, 1] = value
        with np.errstate(all="ignore"):
            expected = array.copy()
            element = np.asarray(float(value) if value == 10**30 else value).astype(array.dtype)
            expected[1:, ::2] = expected[0, 1] = element
        assert x.numpy().tobytes() == expected.tobytes(), value
