"""Convolutions of integers, computed as float64, in which sums of so few bits are exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import TooLargeError
from dl4all.ops.core.tensor_base import TensorBase

EXACT = 2**40
"""Sums below are exact once rounded, also where they are computed by Fourier transforms."""


def widened(name: str, *operands: Any) -> list[Any]:
    """The operands of a convolution as float64: input, weight and bias.

    Raises:
        TooLargeError: sums of products may not be exact.
    """
    arrays = [None if one is None else _array(one) for one in operands]
    largest = [int(np.abs(one.astype(np.float64)).max(initial=0)) for one in arrays[:2]]
    terms = math.prod(arrays[1].shape[1:])
    if math.prod(largest) * max(terms, arrays[1].shape[0]) >= EXACT:
        raise TooLargeError(
            f"[{name}] sums of {terms} products of integers up to {largest[0]} and {largest[1]} may exceed "
            "2^40; convert with .double()"
        )
    return [None if one is None else one.astype(np.float64) for one in arrays]


def narrowed(result: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The result in the integers' dtype."""
    return np.rint(result).astype(dtype)


def _array(operand: Any) -> npt.NDArray[Any]:
    return operand.on_host() if isinstance(operand, TensorBase) else np.asarray(operand)
