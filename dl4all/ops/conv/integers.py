"""Convolutions of integers, computed as float64, in which sums of so few bits are exact."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import TooLargeError
from dl4all.ops.core.tensor_base import TensorBase

Floats: TypeAlias = npt.NDArray[np.float64]

EXACT = 2**40
"""Sums below are exact once rounded, also where they are computed by Fourier transforms."""


def widened(name: str, input: Any, weight: Any, bias: Any) -> tuple[Floats, Floats, Floats | None]:
    """The operands of a convolution as float64.

    Raises:
        TooLargeError: sums of products may not be exact.
    """
    wide, filters = _floats(input), _floats(weight)
    largest = [int(np.abs(one).max(initial=0)) for one in (wide, filters)]
    terms = math.prod(filters.shape[1:])
    if math.prod(largest) * max(terms, filters.shape[0]) >= EXACT:
        raise TooLargeError(
            f"[{name}] sums of {terms} products of integers up to {largest[0]} and {largest[1]} may exceed "
            "2^40; convert with .double()"
        )
    return wide, filters, None if bias is None else _floats(bias)


def narrowed(result: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The result in the integers' dtype."""
    rounded: npt.NDArray[Any] = np.rint(result)
    return rounded.astype(dtype)


def _floats(operand: Any) -> Floats:
    array = operand.on_host() if isinstance(operand, TensorBase) else np.asarray(operand)
    return array.astype(np.float64)
