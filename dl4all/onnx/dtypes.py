"""The element types of ONNX, and the package that has its messages."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from dl4all.errors import BackendMissingError, OperatorError
from dl4all.lazy_names import install_command
from dl4all.ops.core.dtypes import KINDS

NARROW = {
    "int4": np.dtype(np.int8),
    "uint4": np.dtype(np.uint8),
    "int2": np.dtype(np.int8),
    "uint2": np.dtype(np.uint8),
}
"""Integers of which several share a byte in files, and the dtypes of tensors that hold them."""


def protobuf() -> Any:
    """The package ``onnx``, of which only the messages are used.

    Raises:
        BackendMissingError: it is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise BackendMissingError(
            f"[onnx] reading and writing ONNX files needs the package onnx: {install_command('onnx')}"
        ) from None
    return onnx


def element_dtype(number: int) -> np.dtype[Any]:
    """The dtype of tensors for the number of an element type.

    Raises:
        OperatorError: there are no tensors of it.
    """
    return supported(np.dtype(protobuf().helper.tensor_dtype_to_np_dtype(number)))


def supported(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype itself.

    Raises:
        OperatorError: no tensors hold it.
    """
    if held(dtype) not in KINDS:
        raise OperatorError(f"there are no tensors of {dtype}")
    return dtype


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest integer of a dtype.

    Raises:
        TypeError: it is not one of integers.
    """
    if dtype.kind not in "iu" and dtype.name not in NARROW:
        raise TypeError(f"expected integers, got {dtype}")
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of tensors that hold elements of one."""
    return NARROW.get(dtype.name, dtype)
