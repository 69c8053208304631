"""Tensors of requests, as both protocols bring them.

What a request says of itself is compared with its length before anything is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import kind_of
from dl4all.serving.datatypes import DATATYPES, NDArray
from dl4all.serving.request_error import Reason, RequestError, invalid

MOST_BYTES = 64 << 20
"""A body's, also when it is decompressed."""
MOST_SIZES = 8  # of a shape

UNSUPPORTED = ("classification", "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
"""Parameters whose absence would change the answer, so that they cannot be ignored."""


def check_size(size: int) -> None:
    """
    Raises:
        RequestError: a body is too large.
    """
    if size > MOST_BYTES:
        raise RequestError(
            Reason.TOO_LARGE, f"a body has at most {MOST_BYTES} bytes; send fewer rows at once"
        )


def check_parameters(parameters: Mapping[str, Any], what: str) -> None:
    """
    Raises:
        RequestError: there is one that changes the answer and is not supported.
    """
    for name in UNSUPPORTED:
        if name in parameters:
            raise invalid(f"{what} has the parameter {name!r}, which is not supported")


def dtype_of(name: str, datatype: Any) -> np.dtype[Any]:
    """The dtype of an input.

    Raises:
        RequestError: there is no such datatype.
    """
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise invalid(
            f"input {name[:60]!r} has the datatype {str(datatype)[:20]!r}; use one of {', '.join(DATATYPES)}"
        )
    return DATATYPES[datatype]


def checked_shape(name: str, shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape of an input.

    Raises:
        RequestError: it is none.
    """
    if len(shape) > MOST_SIZES or not all(type(size) is int and 0 <= size < 1 << 31 for size in shape):
        raise invalid(
            f"input {name[:60]!r} has the shape {str(shape)[:80]}; sizes are integers, at most {MOST_SIZES}"
        )
    return tuple(shape)


def from_bytes(data: memoryview | bytes, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    """An input from its elements' bytes, little endian and in the order of C.

    Raises:
        RequestError: they are not as many as the shape says, or something else than 0 and 1 for a bool.
    """
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise invalid(f"input {name[:60]!r} has {len(data)} bytes; its datatype and shape make {expected}")
    if dtype.kind == "b" and (np.frombuffer(data, np.uint8) > 1).any():
        raise invalid(f"input {name[:60]!r} is BOOL: its bytes are 0 and 1")
    return np.frombuffer(data, dtype).reshape(shape)


def from_numbers(array: NDArray, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    """An input from numbers of another dtype, each of which the input's has.

    Raises:
        RequestError: there are others, or more or fewer than the shape says.
    """
    if array.shape not in (shape, (math.prod(shape),)):
        raise invalid(f"input {name[:60]!r} has data of the shape {[*array.shape]}, and says {[*shape]}")
    kinds = {"b": "b", "f": "fiu"}.get(kind_of(dtype), "iu")
    if array.size and array.dtype.kind not in kinds:
        raise invalid(f"input {name[:60]!r} has data that are no numbers of its datatype")
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
    exact = (made == array) if kind_of(dtype) != "f" else np.isfinite(made) | ~np.isfinite(array)
    if not np.all(exact):
        raise invalid(f"input {name[:60]!r} has a number that its datatype does not have")
    return made.reshape(shape)


def patience(microseconds: Any) -> float | None:
    """The seconds after which a client gives up, from the parameter ``timeout``.

    Raises:
        RequestError: it is no number of microseconds.
    """
    if microseconds is None:
        return None
    if type(microseconds) is not int or not 0 < microseconds < 1 << 53:
        raise invalid("the parameter 'timeout' must be a number of microseconds")
    return microseconds * 1e-6


def check_outputs(wanted: Iterable[str], known: Iterable[str]) -> None:
    """
    Raises:
        RequestError: an output is wanted that the model has not.
    """
    names = [*known]
    for name in wanted:
        if name not in names:
            raise invalid(f"there is no output {name[:60]!r}; the model has {', '.join(names)}")
