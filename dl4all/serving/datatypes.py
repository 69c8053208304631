"""The datatypes of the protocol, and the dtypes of tensors that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.dtypes import BFLOAT16, KINDS
from dl4all.serving.request_error import Reason, RequestError, invalid

NDArray = npt.NDArray[Any]

DATATYPES = {
    "BOOL": np.dtype(bool),
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "BF16": BFLOAT16,
}

WIDER: dict[str, np.dtype[Any]] = {
    "uint16": np.dtype("int32"),
    "uint32": np.dtype("int64"),
    "uint64": np.dtype("int64"),
}
"""The dtypes of tensors that hold those which no tensor has."""


def held(datatype: str) -> np.dtype[Any]:
    """The dtype of tensors of a datatype.

    >>> held("FP16"), held("UINT32")
    (dtype('float16'), dtype('int64'))
    """
    dtype = DATATYPES[datatype]
    return dtype if dtype in KINDS else WIDER[str(dtype)]


def to_held(array: NDArray) -> NDArray:
    """An array of a request as tensors hold it.

    Raises:
        RequestError: a number is too large for that.
    """
    if array.dtype in KINDS:
        return array
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise invalid(f"numbers of UINT64 are held as INT64, up to {np.iinfo(np.int64).max}")
    return array.astype(WIDER[str(array.dtype)])


def from_held(array: NDArray, datatype: str) -> NDArray:
    """An array of an output in its datatype.

    Raises:
        RequestError: it has numbers that the datatype does not have.
    """
    dtype = DATATYPES[datatype]
    if array.dtype == dtype:
        return array
    limits = np.iinfo(dtype)
    if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
        raise RequestError(Reason.FAILED, f"the output has numbers that {datatype} does not have")
    return array.astype(dtype)
