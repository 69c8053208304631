"""The largest sizes and numbers: what is beyond them is refused by the same errors on every device."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, DeviceError, OutOfMemoryError
from dl4all.ops.core.tensor_base import Shape, host_int

MEMORY_ELEMENTS = 2**48
"""A tensor with memory of its own has fewer elements: that many fit into no address space."""
LARGE_ELEMENTS = 2**26
"""Whether there is memory for a result is looked at from here on; below, asking for it tells."""
VIEW_ELEMENTS = 2**60
"""A view, which may repeat elements, has fewer: NumPy counts bytes in 63 bits."""
PARTS = 2**24
"""A tensor is split into at most so many views: more take gigabytes."""
LAYERS = 2**16
"""A network has at most so many layers of one kind: more take hours to make."""
INTEGERS = 2**63
"""Arguments that are integers lie below, and not below its negative: so far dtypes go."""


def extent(shape: Shape) -> int:
    """The number of elements, without the axes that have none.

    >>> extent((0, 2, 3))
    6
    """
    return math.prod(shape) or math.prod(size for size in shape if size)


def check_shape(name: str, shape: Shape) -> Shape:
    """The shape of a tensor with memory of its own.

    Raises:
        ArgumentError: no memory holds it.
    """
    if extent(shape) >= MEMORY_ELEMENTS:
        raise ArgumentError(f"[{name}] shape {shape} is larger than any memory; use smaller sizes")
    return shape


def check_view(name: str, shape: Shape) -> Shape:
    """The shape of a view, whose elements may share memory.

    Raises:
        ArgumentError: it has more elements than can be counted.
    """
    if extent(shape) >= VIEW_ELEMENTS:
        raise ArgumentError(f"[{name}] shape {shape} has more than 2^60 elements; use smaller sizes")
    return shape


def integer(name: str, what: str, value: Any, least: int = -INTEGERS, most: int = INTEGERS - 1) -> int:
    """An argument that must be an int.

    >>> integer("narrow", "length", 3, least=0)
    3

    Raises:
        ArgumentError: it is something else, or not from `least` to `most`.
    """
    if not isinstance(value, (int, np.integer)):
        value = host_int(value)
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ArgumentError(f"[{name}] {what} must be an int, got {value!r}")
    if not least <= value <= most:
        bounds = f"at least {least}" if value < least else f"at most {most}"
        raise ArgumentError(f"[{name}] {what} must be {bounds}, got {value}")
    return int(value)


def real(name: str, what: str, value: Any, *, finite: bool = False) -> float:
    """An argument that must be a number; of an int the nearest float.

    Raises:
        ArgumentError: it is something else, or with `finite` infinite, nan or beyond float64.
    """
    try:
        number = float(value)
    except OverflowError:  # of an int
        number = math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        raise ArgumentError(f"[{name}] {what} must be a number, got {value!r}") from None
    if finite and not math.isfinite(number):
        raise ArgumentError(f"[{name}] {what} must be finite, got {value!r}")
    return number


def out_of_memory(name: str, shape: Shape, dtype: np.dtype[Any]) -> OutOfMemoryError:
    """The error that the host has no memory to compute a result."""
    nbytes = math.prod(shape) * dtype.itemsize
    return OutOfMemoryError(
        f"[{name}] a result of {nbytes} bytes, or what it is computed from, does not fit into memory; free "
        "tensors or use a smaller batch"
    )


def check_host_memory(name: str, shape: Shape, dtype: np.dtype[Any], memory: int) -> None:
    """Raise where a tensor is larger than the host's memory: systems promise more than they have.

    Raises:
        OutOfMemoryError
    """
    if math.prod(shape) * dtype.itemsize > memory:
        raise out_of_memory(name, shape, dtype)


@contextlib.contextmanager
def host_memory(name: str) -> Iterator[None]:
    """A context in which NumPy's errors about the host's memory become typed ones.

    Raises:
        OutOfMemoryError
    """
    try:
        yield
    except DeviceError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"[{name}] {error}; free tensors or use a smaller batch") from None
