"""Tensors made beside others: of what was given, of random ints, of the places of a triangle."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.ops.random.generator import Generator
from dl4all.scheduler.device import Device
from dl4all.tensor.creation import checked_dtype, from_numpy, tensor
from dl4all.tensor.random import randint
from dl4all.tensor.tensor import Tensor


def as_tensor(data: Any, dtype: npt.DTypeLike = None, device: str | Device | None = None) -> Tensor:
    """`data` as a tensor: itself if it is one of that dtype on that device, otherwise made of it.

    Args:
        data: a tensor, a number, nested lists or a NumPy array; on the CPU an array's memory is shared.
        dtype: the element type; by default that of the data.
        device: where it will live; by default where a tensor is, and for all else the best device.

    Raises:
        DTypeError: the elements have no type that tensors can have.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2)
        >>> dl.as_tensor(x) is x, dl.as_tensor([1, 2]).tolist()
        (True, [1, 2])
    """
    if isinstance(data, Tensor):
        targets = [target for target in (device, None if dtype is None else checked_dtype(dtype)) if target]
        return data.to(*targets) if targets else data
    place = "auto" if device is None else device
    if isinstance(data, np.ndarray) and (dtype is None or data.dtype == checked_dtype(dtype)):
        return from_numpy(data, place)
    return tensor(data, dtype, place)


asarray = as_tensor


def scalar_tensor(s: float, dtype: npt.DTypeLike = "float32", device: str | Device = "auto") -> Tensor:
    """A number as a tensor without axes.

    Example:
        >>> import dl4all as dl
        >>> dl.scalar_tensor(2).item()
        2.0
    """
    return tensor(s, dtype, device)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: npt.DTypeLike = None,
    generator: Generator | None = None,
) -> Tensor:
    """Random whole numbers of a tensor's shape, dtype and device, uniform in [low, high), or in [0, low).

    Raises:
        ArgumentError: `low` is not smaller than `high`, or the numbers do not fit into the dtype.

    Example:
        >>> import dl4all as dl
        >>> dl.randint_like(dl.zeros(2, 2), 3, 4).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    start, end = (0, low) if high is None else (low, high)
    kind = input.dtype if dtype is None else checked_dtype(dtype)
    return randint(start, end, input.shape, dtype=kind, generator=generator, device=input.device)


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: npt.DTypeLike = "int64", device: str | Device = "auto"
) -> Tensor:
    """The places on and below a diagonal of a matrix: rows in the first line, columns in the second.

    Args:
        row, col: the size of the matrix.
        offset: how far above the main diagonal the last one that counts is.
        dtype: of the indices.
        device: where they will live.

    Raises:
        ArgumentError: a size is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.tril_indices(2, 2).tolist()
        [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", row, col, offset, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: npt.DTypeLike = "int64", device: str | Device = "auto"
) -> Tensor:
    """The places on and above a diagonal of a matrix; arguments as for :func:`tril_indices`.

    Raises:
        ArgumentError: a size is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.triu_indices(2, 2).tolist()
        [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", row, col, offset, dtype, device)


def _triangle(
    name: str, row: int, col: int, offset: int, dtype: npt.DTypeLike, place: str | Device
) -> Tensor:
    if row < 0 or col < 0:
        raise ArgumentError(f"[{name}] sizes must be at least 0, got {row} and {col}")
    find = np.tril_indices if name == "tril_indices" else np.triu_indices
    return tensor(np.stack(find(row, offset, col)).astype(checked_dtype(dtype)), device=place)
