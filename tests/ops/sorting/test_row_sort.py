"""The sorting kernels against NumPy's stable sort, whatever devices prefer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.ops.core.dtypes import DTYPES
from dl4all.ops.sorting.row_sort import MOST_KEPT, RADIX_TILE, RANK_SIZE, SPAN, row_order
from dl4all.runtime.null.backend import NullBackend
from tests.support.sortable import sortable, stable_order

# Each way of sorting: by counting, in one tile with others or alone, in rounds of tiles, and by digits.
SHAPES = (
    (1, 1), (5, 7), (3, RANK_SIZE), (67, RANK_SIZE + 1), (3, 509), (2, SPAN), (3, SPAN + 1), (1, 5003),
    (2, RADIX_TILE + 3),
)  # fmt: skip


def check(x: np.ndarray[Any, Any], device: str, *keeps: int) -> None:
    tensor = dl.tensor(x, device=device)
    for descending in (False, True):
        expected = stable_order(x, descending=descending)
        for keep in keeps or sorted({1, min(5, x.shape[1]), x.shape[1]}):
            order = row_order(tensor, keep, descending=descending)
            np.testing.assert_array_equal(order.on_host(), expected[:, :keep], f"{descending=} {keep=}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernels_sort(shape: tuple[int, int], device: str) -> None:
    check(sortable(shape, np.float32), device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype: np.dtype[Any], device: str) -> None:
    for shape in ((5, 7), (3, 509), (2, SPAN + 1)):
        check(sortable(shape, dtype), device)


def test_more_than_65536_elements(device: str) -> None:
    check(sortable((1, 70001), np.float32), device)


def test_many_rows(device: str) -> None:
    check(sortable((40_003, 2), np.float32), device)


def test_elements_kept_by_each_round(device: str) -> None:
    check(sortable((2, 3 * SPAN), np.int32), device, MOST_KEPT - 1, MOST_KEPT, MOST_KEPT + 1)


def test_equal_elements_keep_their_order(device: str) -> None:
    for size in (RANK_SIZE, SPAN, RADIX_TILE + 1):
        check(np.full((2, size), 3.5, np.float32), device)
        check(np.full((2, size), np.nan, np.float32), device)


def test_the_largest_key_stands_before_what_fills_a_tile(device: str) -> None:
    """A tile's last places hold what no element is; keys of ones are nan's, and the largest integers'."""
    check(np.full((3, 100), np.iinfo(np.uint8).max, np.uint8), device)
    check(np.full((3, 100), np.iinfo(np.int64).max, np.int64), device)


@pytest.mark.parametrize(
    ("shape", "keep"), [((1, 2**24), 2**24), ((2**19, 32), 32), ((2**14, 2**10), 2**10), ((1, 2**24), 40)]
)
def test_grids_of_large_operands_fit(shape: tuple[int, int], keep: int) -> None:
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    x = dl.Tensor(place.allocate(4 * shape[0] * shape[1]), shape, dl.float32, place)
    assert row_order(x, keep).shape == (shape[0], keep)
    assert backend.counts["dispatch"] > 1
    assert backend.counts["download"] == 0
