"""Branchless selection of elements on the host.

NumPy's ``where`` takes 5 ns for an element where the branch is unpredictable, more than the arithmetic around
it, and 0.7 ns where all elements take the same branch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

MIN_ZEROS, MAX_ZEROS = 64, 2**15  # of a row to compare with: enough for SIMD, few enough for the cache


def keep_where(
    values: npt.NDArray[Any], mask: npt.NDArray[Any], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """The values where the mask is true, and 0 elsewhere even for nan; writes into `out` if given.

    >>> import numpy as np
    >>> keep_where(np.array([1.0, np.nan, 3.0]), np.array([True, False, True])).tolist()
    [1.0, 0.0, 3.0]
    """
    words = f"u{values.dtype.itemsize}"
    out_words = None if out is None else out.view(words)
    result: npt.NDArray[Any] = np.bitwise_and(values.view(words), _bits(mask, words), out=out_words)
    return result.view(values.dtype)


def clamp_negative(x: npt.NDArray[Any], out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """The larger of each element and 0; nan stays nan; writes into `out` if given.

    NumPy compares two arrays with SIMD instructions, but an array and a number one by one.

    >>> import numpy as np
    >>> clamp_negative(np.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    rows = (x.shape[axis:] for axis in range(x.ndim))
    row = next((shape for shape in rows if math.prod(shape) <= MAX_ZEROS), ())
    zeros = np.zeros(row if math.prod(row) >= MIN_ZEROS else (), x.dtype)
    result: npt.NDArray[Any] = np.maximum(x, zeros, out=out)
    return result


def select(mask: npt.NDArray[Any], values: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values where the mask is true, the others, cast to the same dtype, elsewhere.

    >>> import numpy as np
    >>> select(np.array([True, False]), np.array([1.0, 2.0]), np.array([3.0, np.nan])).tolist()
    [1.0, nan]
    """
    words = f"u{values.dtype.itemsize}"
    low = np.asarray(others, values.dtype).view(words)  # NumPy 1 widens 0-d arrays
    bits = ((values.view(words) ^ low) & _bits(mask, words)) ^ low
    result: npt.NDArray[Any] = bits.view(values.dtype)
    return result


def _bits(mask: npt.NDArray[Any], words: str) -> npt.NDArray[Any]:
    """Words with all bits set where the mask is true, and 0 elsewhere."""
    result: npt.NDArray[Any] = np.negative(mask.view(np.int8)).astype(words.replace("u", "i")).view(words)
    return result


def logistic(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The logistic function ``1 / (1 + exp(-x))``, in new memory.

    >>> import numpy as np
    >>> logistic(np.array([0.0, 100.0])).tolist()
    [0.5, 1.0]
    """
    result: npt.NDArray[Any] = np.negative(x, out=np.empty_like(x))
    np.exp(result, out=result)
    result += 1
    np.reciprocal(result, out=result)
    return result


def logistic_slope(x: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """:func:`logistic` and its derivative.

    >>> import numpy as np
    >>> [values.tolist() for values in logistic_slope(np.array([0.0]))]
    [[0.5], [0.25]]
    """
    slope = np.negative(x, out=np.empty_like(x))
    np.exp(slope, out=slope)
    value = np.add(slope, 1, out=np.empty_like(x))
    np.reciprocal(value, out=value)
    np.minimum(slope, np.finfo(x.dtype).max, out=slope)  # so that the product is 0 and not 0 * inf
    slope *= value
    slope *= value
    return value, slope
