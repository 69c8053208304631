"""Conversion between bfloat16 patterns and float32 against the definition."""

from __future__ import annotations

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import DTypeError
from dl4all.ops.memory.bfloat16 import bfloat16_to_float32, float32_to_bfloat16

WORDS = np.random.default_rng(5).integers(0, 2**32, 4099, np.uint64).astype(np.uint32)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -3e-39, 3.4e38, 1.00390625, 1.01171875]
NUMBERS = np.concatenate([WORDS.view(np.float32), np.array(SPECIAL, np.float32)])


def nearest(numbers: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The upper halves of the two neighbours in bfloat16 of each number, whichever is nearer."""
    below = numbers.view(np.uint32) & np.uint32(0xFFFF0000)
    rest, odd = numbers.view(np.uint32) & np.uint32(0xFFFF), (below >> 16) & 1
    up = (rest > 0x8000) | ((rest == 0x8000) & (odd == 1))
    rounded: np.ndarray = (below + (up.astype(np.uint32) << 16)).view(np.float32)  # type: ignore[type-arg]
    return rounded


@pytest.mark.parametrize("count", [0, 1, 2, 131, len(NUMBERS)])
def test_rounds_to_nearest_even(device: str, count: int) -> None:
    numbers = NUMBERS[len(NUMBERS) - count :]
    with dl.fallback.policy("error"):
        patterns = float32_to_bfloat16(dl.tensor(numbers, device=device))
        wide = bfloat16_to_float32(patterns).on_host()
    assert patterns.dtype == np.int16
    numbers_or_nan = np.where(np.isnan(numbers), np.float32(np.nan), nearest(numbers))
    np.testing.assert_array_equal(wide, numbers_or_nan)
    np.testing.assert_array_equal(np.signbit(wide[~np.isnan(wide)]), np.signbit(numbers[~np.isnan(wide)]))


def test_views(device: str) -> None:
    numbers = NUMBERS[:1001].reshape(7, 143)
    patterns = float32_to_bfloat16(dl.tensor(numbers, device=device)[1:, 3:].mT)
    np.testing.assert_array_equal(
        bfloat16_to_float32(patterns)[1::2].on_host(),  # type: ignore[index]
        np.where(np.isnan(numbers), np.float32(np.nan), nearest(numbers))[1:, 3:].T[1::2],
    )


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(DTypeError, match="int16"):
        bfloat16_to_float32(dl.ones(3))
    with pytest.raises(DTypeError, match="float32"):
        float32_to_bfloat16(dl.ones(3, dtype="float64"))
