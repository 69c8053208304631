"""The dtypes of tensors, and what NumPy says otherwise of those that it does not have.

bfloat16 and the floats of 8 bits come from ml_dtypes: NumPy promotes them with few others, and takes most of
them for no floats.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dl4all.errors import DTypeError

FLOAT32, FLOAT16, BFLOAT16 = (np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16))
INT8, INT16, INT32, UINT8 = (np.dtype(t) for t in (np.int8, np.int16, np.int32, np.uint8))
FLOAT8_E4M3FN, FLOAT8_E5M2 = (np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))

DTYPES = (
    FLOAT32,
    *map(np.dtype, (np.float64, np.float16)),
    BFLOAT16,
    *map(np.dtype, ("int64", "int32", "int16", "int8", "uint8", "bool")),
)
"""The dtypes that ops compute with."""

HALVES = frozenset((FLOAT16, BFLOAT16))
"""Floats of 16 bits: memory holds them, results are computed in float32 and rounded once."""

FLOATS = frozenset((FLOAT32, *HALVES))
"""The dtypes of floats that kernels of devices read and write as they are."""

FLOAT8 = frozenset((FLOAT8_E4M3FN, FLOAT8_E5M2))
"""Floats of 8 bits: memory holds them, ops move and convert them, and none computes with them."""

KINDS = {dtype: "f" if dtype == BFLOAT16 else dtype.kind for dtype in DTYPES} | dict.fromkeys(
    (FLOAT8_E4M3FN, FLOAT8_E5M2), "s"
)
"""The letters of the kinds of all dtypes that tensors can have: see :func:`kind_of`."""
FLOATING = frozenset(dtype for dtype, kind in KINDS.items() if kind in "fs")

KINDS_OF_NUMBERS = "".join(sorted(set(KINDS.values())))
"""All of these letters: those of arrays that become tensors."""

KIND_RANKS = {dtype: {"b": 0, "u": 1, "i": 1, "f": 2, "s": 2}[kind] for dtype, kind in KINDS.items()}
"""The order of the kinds, bool, integers, floats: a result has the highest kind of its operands."""


CHOICE = f"use one of {', '.join(map(str, KINDS))}"  # at the end of an error
STORED_ADVICE = "floats of 8 bits are stored, not computed with: convert them, as in x.float()"


def kind_of(dtype: np.dtype[Any]) -> str:
    """NumPy's letter for a kind of dtypes: ``"f"`` for floats, ``"i"``, ``"u"`` and ``"b"``.

    Floats of 8 bits, which are stored and not computed with, have a letter of their own: ``"s"``.

    >>> kind_of(BFLOAT16), kind_of(np.dtype("int8")), kind_of(np.dtype("complex64"))
    ('f', 'i', 'c')
    """
    return KINDS.get(dtype) or dtype.kind


def checked_dtype(op: str, dtype: Any) -> np.dtype[Any]:
    """The dtype that an argument `dtype` of an op names.

    Raises:
        DTypeError: it is no dtype, or not one that tensors can have.
    """
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise DTypeError(f"[{op}] {error}; {CHOICE}") from None
    if result not in KINDS:
        raise DTypeError(f"[{op}] dtype {result} is not supported; {CHOICE}")
    return result


def promoted(first: np.dtype[Any], second: np.dtype[Any]) -> np.dtype[Any]:
    """The smallest dtype that holds all numbers of two dtypes of one kind.

    Raises:
        DTypeError: one of them is a float of 8 bits, and the other is another dtype.

    >>> promoted(BFLOAT16, np.dtype("float16")), promoted(np.dtype("uint8"), np.dtype("int8"))
    (dtype('float32'), dtype('int16'))
    """
    if first == second:
        return first
    if first in FLOAT8 or second in FLOAT8:
        raise DTypeError(f"[promote_types] {first} and {second} have no dtype in common; {STORED_ADVICE}")
    if BFLOAT16 in (first, second):
        return np.promote_types(*(FLOAT32 if dtype in HALVES else dtype for dtype in (first, second)))
    return np.promote_types(first, second)


def widened(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that numbers of a dtype of floats are computed in: float32 for halves.

    >>> widened(BFLOAT16), widened(np.dtype("float64"))
    (dtype('float32'), dtype('float64'))
    """
    return FLOAT32 if dtype in HALVES else dtype


def converted(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The array in another dtype as NumPy's ``astype`` converts it, itself if it has that dtype already.

    What is beyond float8_e4m3fn, which has no infinity, becomes its largest number, as in PyTorch; ml_dtypes
    makes it nan.

    >>> converted(np.float32([1e9, -np.inf, np.nan]), FLOAT8_E4M3FN)
    array([448, -448, nan], dtype='float8_e4m3fn')
    """
    if array.dtype == object and kind_of(np.dtype(dtype)) in "fs":
        # Integers of more than 64 bits, of which ml_dtypes makes no floats.
        array = array.astype(np.float64)
    if dtype == FLOAT8_E4M3FN and array.dtype != dtype:
        array = np.clip(array.astype(np.result_type(widened(array.dtype), FLOAT32)), -448.0, 448.0)
    return array.astype(dtype, copy=False)


def finfo(type: Any = FLOAT32) -> Any:
    """The limits of a dtype of floats by the names of NumPy's ``finfo``: ``eps``, ``max``, ``tiny``, others.

    Args:
        type: a dtype of floats, or its name.

    Raises:
        ValueError: it is none.

    Example:
        >>> import dl4all as dl
        >>> float(dl.finfo(dl.bfloat16).eps), float(dl.finfo("float16").max)
        (0.0078125, 65504.0)
    """
    dtype = np.dtype(type)
    of_numpy = dtype.kind == "f" and dtype not in FLOAT8
    return np.finfo(dtype) if of_numpy else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


class _Default:
    """The dtype that ``dl.set_default_dtype`` sets: of new tensors of floats where none is named."""

    def __init__(self) -> None:
        self.dtype: np.dtype[Any] = FLOAT32


default = _Default()
