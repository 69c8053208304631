"""The Philox random number generator: the same numbers, bit by bit, on every device.

Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11) turns a counter and a
key into four words of 32 bits with integer arithmetic only. Element i of a draw is computed from word
``i % 4`` of counter ``offset + i // 4``, so elements can be computed anywhere and in any order.
``shaders/include/philox.glsl`` and ``normal.comp`` do the same on devices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
MASK = 0xFFFFFFFF
FEW = 8  # counters that are turned into words faster one by one, in Python's integers
BLOCK = 1 << 14  # counters at a time: their working set fits a core's cache

# The table of the normal distribution.
SEGMENT_BITS = 4  # of a probability's mantissa: 16 segments between two powers of two
ROWS = 32  # powers of two
FRACTION = 28  # fractional bits of the results

Words = npt.NDArray[np.uint32]


def philox(counters: npt.NDArray[np.uint64], key: int, high: npt.NDArray[np.uint64] | int = 0) -> Words:
    """Four words for each counter of 128 bits.

    Args:
        counters: the lower 64 bits, of shape (n,).
        key: 64 bits.
        high: the upper 64 bits.

    Returns:
        Shape (n, 4).
    """
    if len(counters) <= FEW and isinstance(high, int):
        return np.array([_words(counter, key, high) for counter in counters.tolist()], np.uint32).reshape(
            -1, 4
        )
    # Words of 32 bits in elements of 64 bits, which hold their products.
    c0, c1 = counters & np.uint64(MASK), counters >> np.uint64(32)
    upper = np.broadcast_to(np.asarray(high, np.uint64), counters.shape)
    c2, c3 = upper & np.uint64(MASK), upper >> np.uint64(32)
    k0, k1 = key & MASK, key >> 32
    for _ in range(ROUNDS):
        first, second = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0 = second >> np.uint64(32)
        c0 ^= c1
        c0 ^= np.uint64(k0)
        c2 = first >> np.uint64(32)
        c2 ^= c3
        c2 ^= np.uint64(k1)
        second &= np.uint64(MASK)
        first &= np.uint64(MASK)
        c1, c3 = second, first
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK, (k1 + KEY_STEPS[1]) & MASK
    words = np.empty((len(counters), 4), np.uint32)
    for column, values in enumerate((c0, c1, c2, c3)):
        words[:, column] = values
    return words


def _words(counter: int, key: int, high: int) -> tuple[int, int, int, int]:
    """As :func:`philox`, of one counter."""
    c0, c1, c2, c3 = counter & MASK, counter >> 32, high & MASK, high >> 32
    k0, k1 = key & MASK, key >> 32
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & MASK, (first >> 32) ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK, (k1 + KEY_STEPS[1]) & MASK
    return c0, c1, c2, c3


def blocks(seed: int, offset: int, count: int) -> Iterator[tuple[int, Words]]:
    """The first `count` words from a counter on, in blocks, each with its start."""
    for start in range(0, count, 4 * BLOCK):
        size = min(4 * BLOCK, count - start)
        counters = np.arange(-(-size // 4), dtype=np.uint64)
        counters += np.uint64((offset + start // 4) % 2**64)
        yield start, philox(counters, seed).reshape(-1)[:size]


def filled(
    out: npt.NDArray[Any], seed: int, offset: int, convert: Callable[[Words], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """Fill one-dimensional `out` with random words that `convert` turns into numbers; returns it."""
    for start, words in blocks(seed, offset, len(out)):
        out[start : start + len(words)] = convert(words)
    return out


def random_words(seed: int, offset: int, count: int) -> Words:
    """`count` words of 32 random bits."""
    return filled(np.empty(count, np.uint32), seed, offset, lambda words: words)


def uniform(words: Words) -> npt.NDArray[np.float32]:
    """The upper 24 bits of each word as a multiple of 2^-24 in [0, 1), which float32 represents exactly."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)


def normal(words: Words) -> npt.NDArray[np.float32]:
    """Standard normal numbers, one from each word, by inversion of the distribution function.

    One bit is the sign. The others are a number m below 2^31, and ``(m + 1/2) / 2^32`` is the probability of
    exceeding the result, which is at most 6.3. The quantile is a cubic polynomial with integer coefficients
    from a table with a row for each sixteenth between two powers of two, evaluated in integers; its error
    before rounding to float32 is below 4e-8. Nothing is rounded in a way in which devices differ, as they do
    for logarithms, square roots, quotients and fused products.
    """
    # The exponent of a float64 is the position of the leading bit of m, its mantissa the bits that follow.
    bits = (words & np.uint32(0x7FFFFFFF)).astype(np.float64).view(np.int64)
    rows = np.maximum((bits >> (52 - SEGMENT_BITS)) - (1022 << SEGMENT_BITS), 0)
    fraction = (bits & ((1 << (52 - SEGMENT_BITS)) - 1)) >> (21 - SEGMENT_BITS)  # 31 bits
    columns = _columns()
    value = columns[3][rows]
    for column in columns[2::-1]:
        value *= fraction
        value >>= 32
        value += column[rows]
    magnitude = np.maximum(value, 0).astype(np.float32) * np.float32(2**-FRACTION)
    signed: npt.NDArray[np.float32] = np.where(words >> np.uint32(31), -magnitude, magnitude)
    return signed


@functools.cache
def table() -> npt.NDArray[np.int32]:
    """The coefficients for :func:`normal`, of shape (512, 4), the constant one first.

    Each is doubled once more than the previous one, since the fraction has 31 bits and devices give the upper
    32 bits of a product. They are the same on every machine: only the quantiles are computed in floating
    point, and they are rounded to a grid so coarse that C libraries' logarithms agree on it.
    """
    segments = 1 << SEGMENT_BITS
    rows: list[list[int]] = [[round(quantile(0.5) * 2**FRACTION), 0, 0, 0]] * segments
    for row in range(ROWS - 1):
        for segment in range(segments):
            tails = (2.0**row * (1 + (segment + point / 32) / segments) for point in POINTS)
            rows.append(_cubic([round(quantile(tail + 0.5) * NODES) for tail in tails]))
    return np.array(rows, np.int32)


def quantile(tail: float) -> float:
    """The number that a normal number exceeds with probability ``tail / 2^32``."""
    return -NormalDist().inv_cdf(tail / 2.0**32)


POINTS = (1, 10, 22, 31)  # in 32nds of a segment: near the Chebyshev nodes of a cubic
NODES = 1 << (FRACTION + 2)  # the grid of the quantiles


def _cubic(values: list[int]) -> list[int]:
    """The coefficients of the cubic through `values` at the points, rounded once, scaled for the table."""
    matrix, denominator = _interpolation()
    coefficients = []
    for power, row in enumerate(matrix):
        exact = sum(weight * value for weight, value in zip(row, values, strict=True)) << power
        whole = denominator * (NODES >> FRACTION)
        coefficients.append((2 * exact + whole) // (2 * whole))
    return coefficients


@functools.cache
def _interpolation() -> tuple[list[list[int]], int]:
    """Lagrange polynomials of the points by powers of the fraction: numerators over one denominator."""
    rows = [[Fraction(0)] * 4 for _ in range(4)]
    for j, point in enumerate(POINTS):
        polynomial = [Fraction(1)]
        for other in POINTS:
            if other != point:  # times (32 x - other) / (point - other)
                product = [Fraction(0), *(32 * c for c in polynomial)]
                for power, c in enumerate(polynomial):
                    product[power] -= other * c
                polynomial = [c / (point - other) for c in product]
        for power, c in enumerate(polynomial):
            rows[power][j] = c
    denominator = math.lcm(*(c.denominator for row in rows for c in row))
    return [[int(c * denominator) for c in row] for row in rows], denominator


@functools.cache
def _columns() -> list[npt.NDArray[np.int64]]:
    return [np.ascontiguousarray(column, np.int64) for column in table().T]
