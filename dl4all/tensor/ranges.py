"""Regular sequences, identity matrices, coordinate grids and indices of triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.dtypes import checked_dtype, kind_of
from dl4all.ops.core.limits import MEMORY_ELEMENTS, check_shape, host_memory, integer, real
from dl4all.ops.core.promotion import check_fits
from dl4all.ops.core.tensor_base import DTypeLike
from dl4all.ops.memory.views import expand, reshape
from dl4all.tensor.arguments import DeviceLike, float_dtype
from dl4all.tensor.creation import from_numpy, tensor, zeros
from dl4all.tensor.tensor import Tensor

__all__ = [
    "arange",
    "eye",
    "linspace",
    "logspace",
    "meshgrid",
    "tril_indices",
    "triu_indices",
]


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from `start` (0 if only one is given) up to `end`, without it.

    Of ints they are int64, otherwise of the default dtype.

    Raises:
        ArgumentError: the step is 0, or leads away from the end; a number is not finite, or does not fit
            into the dtype; or there would be too many.
        OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.arange(3).tolist(), dl.arange(1.0, 2.0, 0.5).tolist()
        ([0, 1, 2], [1.0, 1.5])
    """
    if end is None:
        start, end = 0, start
    start, end, step = (n.item() if isinstance(n, Tensor) else n for n in (start, end, step))
    whole = all(isinstance(number, (int, np.integer)) for number in (start, end, step))
    for what, number in (("start", start), ("end", end), ("step", step)):
        if whole:
            integer("arange", what, int(number))
        else:
            real("arange", what, number, finite=True)
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(f"[arange] step {step} does not lead from {start} to {end}")
    result_dtype = float_dtype("int64" if whole and dtype is None else dtype)
    if not whole and result_dtype == np.int64:  # whose numbers are exact: fractions are left out
        start, end, step = math.trunc(start), math.trunc(end), math.trunc(step)
        whole = True
    if step == 0:
        raise ArgumentError("[arange] the step must not be 0")
    count = _count(int(start), int(end), int(step)) if whole else _count(start, end, step)
    check_shape("arange", (count,))
    if kind_of(result_dtype) in "iu":
        start, step = math.trunc(start), math.trunc(step)
    for number in (start, start + (count - 1) * step) if count else ():
        check_fits("arange", number, result_dtype)
    with host_memory("arange"), np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        return _from_array((start + np.arange(count) * step).astype(result_dtype), device, requires_grad)


def _count(start: float, end: float, step: float) -> int:
    """The number of numbers from `start` up to `end`, without it."""
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return max(-((start - end) // step), 0)
    quotient = (end - start) / step
    return max(math.ceil(quotient), 0) if math.isfinite(quotient) else MEMORY_ELEMENTS


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Numbers at equal distances from `start` to `end`, both of them included.

    Raises:
        ArgumentError: `steps` is negative, or too large.
        OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        result_dtype = float_dtype(dtype)
        numbers = _spaced("linspace", start, end, steps, result_dtype).astype(result_dtype)
    return _from_array(numbers, device, requires_grad)


def _spaced(name: str, start: float, end: float, steps: int, dtype: np.dtype[Any]) -> npt.NDArray[np.float64]:
    """Numbers at equal distances; for a dtype of integers from and to the limits without their fractions.

    Raises:
        ArgumentError: `steps` is no int of at least 0, or too large; or a limit is no number.
        OutOfMemoryError
    """
    low, high = real(name, "start", start), real(name, "end", end)
    check_shape(name, (integer(name, "the number of steps", steps, least=0),))
    if kind_of(dtype) in "iu":
        low, high = float(math.trunc(low)), float(math.trunc(high))
    with host_memory(name):
        return np.linspace(low, high, steps)


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Powers of `base` whose exponents lie at equal distances from `start` to `end`.

    Raises:
        ArgumentError: `steps` is negative, or too large.
        OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.logspace(0, 2, 3).tolist()
        [1.0, 10.0, 100.0]
    """
    radix = real("logspace", "base", base)
    with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        result_dtype = float_dtype(dtype)
        exponents = _spaced("logspace", start, end, steps, result_dtype)
        numbers = np.power(radix, exponents).astype(result_dtype)
    return _from_array(numbers, device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A matrix with ones on its diagonal and zeros elsewhere, square unless `m` columns are asked for.

    Raises:
        ArgumentError: a size is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.eye(2, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    columns = n if m is None else m
    result = zeros(n, columns, dtype=dtype, device=device)
    diagonal = result.strided_view((min(n, columns),), (columns + 1,), 0)
    diagonal.fill_(1)
    return result.requires_grad_() if requires_grad else result


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Views of vectors, each repeated along the axes of the others.

    Args:
        tensors: vectors, or one list of them.
        indexing: "ij" gives the first vector the first axis, "xy" the second.

    Raises:
        ShapeError: one is no vector.
        ArgumentError: the indexing is unknown.

    Example:
        >>> import dl4all as dl
        >>> rows, columns = dl.meshgrid(dl.arange(2), dl.arange(3))
        >>> rows.tolist(), columns.tolist()
        ([[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]])
    """
    vectors: Sequence[Any] = tensors
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        vectors = tensors[0]
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"[meshgrid] the indexing must be 'ij' or 'xy', got {indexing!r}")
    for vector in vectors:
        if len(vector.shape) > 1:
            raise ShapeError(f"[meshgrid] expected vectors, got shape {vector.shape}")
    swapped = indexing == "xy" and len(vectors) > 1
    ordered = [vectors[1], vectors[0], *vectors[2:]] if swapped else list(vectors)
    shape = tuple(vector.numel() for vector in ordered)
    grids = [
        expand(reshape(vector, (*(1,) * i, -1, *(1,) * (len(shape) - i - 1))), shape)
        for i, vector in enumerate(ordered)
    ]
    if swapped:
        grids[:2] = grids[1], grids[0]
    return tuple(grids)


def _from_array(array: npt.NDArray[Any], device: DeviceLike | None, requires_grad: bool) -> Tensor:
    result = from_numpy(array, device or "auto")
    return result.requires_grad_() if requires_grad else result


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike = "int64", device: DeviceLike | None = "auto"
) -> Tensor:
    """Indices of a matrix's elements on and below a diagonal: rows in the first line, columns in the second.

    Args:
        row, col: the size of the matrix.
        offset: how far above the main diagonal the last diagonal that counts lies.
        dtype: the dtype of the indices.
        device: the device of the result.

    Raises:
        ArgumentError: a size is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.tril_indices(2, 2).tolist()
        [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", row, col, offset, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike = "int64", device: DeviceLike | None = "auto"
) -> Tensor:
    """Indices of a matrix's elements on and above a diagonal; arguments as for :func:`tril_indices`.

    Raises:
        ArgumentError: a size is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.triu_indices(2, 2).tolist()
        [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", row, col, offset, dtype, device)


def _triangle(
    name: str, row: int, col: int, offset: int, dtype: DTypeLike, device: DeviceLike | None
) -> Tensor:
    shape = integer(name, "row", row, least=0), integer(name, "col", col, least=0)
    diagonal = max(-row - 1, min(integer(name, "offset", offset), col + 1))  # further out it changes nothing
    check_shape(name, shape)
    indices = np.tril_indices if name == "tril_indices" else np.triu_indices
    with host_memory(name):
        array = np.stack(indices(row, diagonal, col)).astype(checked_dtype(name, dtype))
        return tensor(array, device=device)
