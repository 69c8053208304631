"""Special functions that NumPy lacks, on the host: what the kernels of include/math compute.

They compute in float64, and return arrays of their first operand's dtype.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

NDArray = npt.NDArray[Any]

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""The numbers of Bernoulli with even indices, from the second on."""

ZETA_TERMS = 10_000
"""The most terms that are added up one by one: kernels cannot loop for long."""


def map_elements(function: Callable[[float], float], array: NDArray) -> NDArray:
    """A function of one number, such as those of Python's math, applied to each element."""
    array = np.asarray(array)
    results = np.fromiter(map(function, array.ravel().tolist()), np.float64, array.size)
    return results.reshape(array.shape).astype(array.dtype)


def log_gamma(x: NDArray) -> NDArray:
    """The logarithm of the gamma function's absolute value."""
    return map_elements(_log_gamma, x)


def _log_gamma(x: float) -> float:
    if math.isnan(x):
        return x
    if abs(x) > 1e305 or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


def digamma(x: NDArray) -> NDArray:
    """The derivative of log(gamma), by recurrence, reflection and its asymptotic series."""
    given = np.asarray(x, np.float64)
    below = given < 0
    shifted = np.where(below, 1 - given, given)
    result = np.zeros_like(shifted)
    for _ in range(10):
        small = shifted < 10
        result -= np.where(small, 1 / shifted, 0)
        shifted = np.where(small, shifted + 1, shifted)
    inverse = 1 / (shifted * shifted)
    series = sum(b / (2 * k) * inverse**k for k, b in enumerate(BERNOULLI, start=1))
    result += np.log(shifted) - 0.5 / shifted - series
    angle = np.pi * (given - np.rint(given))
    result -= np.where(below, np.pi / np.tan(angle), 0)
    result = np.where(below & (given == np.floor(given)), np.nan, result)
    result = np.where(given == np.inf, np.inf, result)
    return np.asarray(np.where(given == 0, np.copysign(np.inf, -given), result), x.dtype)


def zeta(exponent: NDArray, offset: NDArray) -> NDArray:
    """Hurwitz's zeta function, by the formula of Euler and Maclaurin."""
    s, q = np.broadcast_arrays(np.asarray(exponent, np.float64), np.asarray(offset, np.float64))
    result, at = np.zeros(s.shape), np.array(q)
    for k in range(ZETA_TERMS + 10):
        more = (k < 9) | (at <= 9)
        if not more.any():
            break
        result += np.where(more, at**-s, 0)
        at = np.where(more & np.isfinite(at), at + 1, at)
    power, factor, tail = at**-s, s, np.zeros(s.shape)
    tail += power * at / (s - 1) + 0.5 * power
    for k, b in enumerate(BERNOULLI, start=1):
        power = power / at
        tail += factor * power * (b / math.factorial(2 * k))
        factor = factor * (s + 2 * k - 1) * (s + 2 * k)
        power = power / at
    result = np.where(np.isposinf(q), 0.0, result + tail)
    pole = (q <= 0) & (q == np.floor(q))
    undefined = (q <= 0) & ((s != np.floor(s)) | (q < -ZETA_TERMS))
    result = np.where(pole, np.inf, np.where(undefined, np.nan, result))
    result = np.where(s == 1, np.inf, np.where(s > 1, result, np.nan))
    return np.asarray(np.where(np.isnan(q) | np.isinf(s), np.nan, result), np.result_type(exponent, offset))


def inverse_erf(x: NDArray) -> NDArray:
    """The inverse of the error function."""
    return map_elements(_inverse_erf, x)


def _inverse_erf(y: float) -> float:
    """By Newton's method, from an approximation by Winitzki."""
    if not -1 < y < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    if y == 0:
        return y
    logarithm = math.log1p(-y * y)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    x = math.copysign(math.sqrt(math.sqrt(half * half - logarithm / 0.147) - half), y)
    for _ in range(4):
        # Beyond 0.5 by the complement, which keeps the digits there.
        error = math.erf(x) - y if abs(y) < 0.5 else math.copysign(1, y) * (1 - abs(y) - math.erfc(abs(x)))
        x -= error * math.exp(x * x) * math.sqrt(math.pi) / 2
    return x


def scaled_erfc(x: NDArray) -> NDArray:
    """``exp(x ** 2) * erfc(x)``."""
    return map_elements(_scaled_erfc, x)


def _scaled_erfc(x: float) -> float:
    if x < -26.6:
        return math.inf
    if not x > 20:
        return math.exp(x * x) * math.erfc(x)
    # From here on its continued fraction ends early.
    fraction = x
    for k in range(20, 0, -1):
        fraction = x + k / 2 / fraction
    return 1 / (math.sqrt(math.pi) * fraction)


STANDARD_NORMAL = statistics.NormalDist()


def normal_quantile(p: NDArray) -> NDArray:
    """The inverse of the normal distribution's cumulative distribution function."""
    return map_elements(_normal_quantile, p)


def _normal_quantile(p: float) -> float:
    if not 0 < p < 1:
        return {0.0: -math.inf, 1.0: math.inf}.get(p, math.nan)
    return STANDARD_NORMAL.inv_cdf(p)
