"""Type promotion: the dtype that an op computes in."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.core.dtypes import DTYPES, FLOATING, KIND_RANKS, checked_dtype, kind_of, promoted
from dl4all.ops.core.op import NUMBERS

Promotion = Literal["common", "float"]
INTEGER_LIMITS = {
    dtype: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for dtype in DTYPES if kind_of(dtype) in "iu"
}


def promote(name: str, operands: Iterable[Any], promotion: Promotion) -> np.dtype[Any]:
    """The dtype to compute in, by PyTorch's rules.

    The order is bool < integers < floats; among tensors of the highest kind the widest dtype counts. A number
    counts only if its kind is higher than the kind of every tensor.

    Raises:
        DTypeError: an operand has a dtype that tensors cannot have.
    """
    common: np.dtype[Any] | None = None
    values = list(operands)
    for value in values:
        if isinstance(value, NUMBERS):
            continue
        dtype = checked_dtype(name, value.dtype)
        if common is None or KIND_RANKS[dtype] > KIND_RANKS[common]:
            common = dtype
        elif KIND_RANKS[dtype] == KIND_RANKS[common]:
            common = promoted(common, dtype)
    for value in values:
        if isinstance(value, NUMBERS):
            dtype = _number_dtype(value)
            if common is None or KIND_RANKS[dtype] > KIND_RANKS[common]:
                common = dtype
    assert common is not None
    return np.dtype(np.float32) if promotion == "float" and common not in FLOATING else common


def _number_dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, (bool, np.bool_)):
        return np.dtype(np.bool_)
    return np.dtype(np.int64 if isinstance(value, (int, np.integer)) else np.float32)


def check_fits(name: str, value: Any, dtype: np.dtype[Any]) -> None:
    """Raise unless `dtype` can represent a number; a float may round to infinity.

    Raises:
        ArgumentError
    """
    if kind_of(dtype) in "iu":
        low, high = INTEGER_LIMITS[dtype]
        fits = bool(low <= value <= high)
    else:
        fits = not isinstance(value, int) or abs(value) <= sys.float_info.max
    if not fits:
        raise ArgumentError(f"[{name}] the number {value} does not fit into {dtype}; convert the tensor")


def check_elements(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Raise unless an integer `dtype` can represent all numbers of an array, without their fractions.

    Raises:
        ArgumentError
    """
    if kind_of(dtype) in "iu" and array.dtype != dtype and array.size:
        for number in (array.min(), array.max()):  # both are nan if one element is
            check_fits(name, number.item(), dtype)
