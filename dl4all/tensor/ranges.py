"""Tensors of regular numbers, and tensors like another one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.memory.copy import fresh_copy
from dl4all.ops.memory.views import expand, reshape
from dl4all.tensor.creation import (
    Place,
    checked_dtype,
    empty,
    from_numpy,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from dl4all.tensor.tensor import Tensor


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: npt.DTypeLike = None,
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from `start` (0 if only one is given) up to `end`, without it: int64 for ints, else float32.

    Raises:
        ArgumentError: the step is 0, or leads away from the end.

    Example:
        >>> import dl4all as dl
        >>> dl.arange(3).tolist(), dl.arange(1.0, 2.0, 0.5).tolist()
        ([0, 1, 2], [1.0, 1.5])
    """
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) * step < 0:
        raise ArgumentError(f"[arange] step {step} does not lead from {start} to {end}")
    whole = all(isinstance(number, (int, np.integer)) for number in (start, end, step))
    count = max(math.ceil((end - start) / step), 0)
    if whole:
        count = len(range(int(start), int(end), int(step)))
    numbers = start + np.arange(count) * step
    wanted = checked_dtype(("int64" if whole else "float32") if dtype is None else dtype)
    return _given(numbers.astype(wanted), device, requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Numbers at equal distances from `start` to `end`, both of them included.

    Raises:
        ArgumentError: `steps` is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if steps < 0:
        raise ArgumentError(f"[linspace] the number of steps must not be negative, got {steps}")
    return _given(np.linspace(start, end, steps).astype(checked_dtype(dtype)), device, requires_grad)


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """Powers of `base` whose exponents lie at equal distances from `start` to `end`.

    Raises:
        ArgumentError: `steps` is negative.
    """
    if steps < 0:
        raise ArgumentError(f"[logspace] the number of steps must not be negative, got {steps}")
    with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
        numbers = np.power(float(base), np.linspace(start, end, steps)).astype(checked_dtype(dtype))
    return _given(numbers, device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: npt.DTypeLike = "float32",
    device: Place = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A matrix with ones on its diagonal and zeros elsewhere, square unless `m` columns are asked for.

    Raises:
        ArgumentError: a size is negative.
    """
    columns = n if m is None else m
    made = zeros(n, columns, dtype=dtype, device=device)
    diagonal = made.as_strided((min(n, columns),), (columns + 1,), 0)
    diagonal.fill_(1)
    return made.requires_grad_() if requires_grad else made


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
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
    vectors = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"[meshgrid] the indexing must be 'ij' or 'xy', got {indexing!r}")
    for vector in vectors:
        if len(vector.shape) > 1:
            raise ShapeError(f"[meshgrid] expected vectors, got shape {vector.shape}")
    swapped = indexing == "xy" and len(vectors) > 1
    ordered = [vectors[1], vectors[0], *vectors[2:]] if swapped else list(vectors)
    shape = tuple(vector.numel() for vector in ordered)
    made = [
        expand(reshape(vector, (*(1,) * i, -1, *(1,) * (len(shape) - i - 1))), shape)
        for i, vector in enumerate(ordered)
    ]
    if swapped:
        made[:2] = made[1], made[0]
    return tuple(made)


def _given(array: npt.NDArray[Any], device: Place, requires_grad: bool) -> Tensor:
    made = from_numpy(array, device)
    return made.requires_grad_() if requires_grad else made


# Like another one


def _as(input: Tensor, dtype: npt.DTypeLike, device: Place | None) -> dict[str, Any]:
    return {
        "dtype": input.dtype if dtype is None else dtype,
        "device": input.device if device is None else device,
    }


def _like(input: Tensor, made: Tensor, requires_grad: bool) -> Tensor:
    """Within ``vmap`` with memory of each sample's own, so that it can be changed to what differs."""
    kept: Any = made
    if isinstance(input, BatchedTensorBase):
        kept = fresh_copy(input.match_levels([made])[0])
    return kept.requires_grad_() if requires_grad else kept  # type: ignore[no-any-return]


def empty_like(
    input: Tensor, dtype: npt.DTypeLike = None, device: Place | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of the same shape, dtype and device with undefined contents."""
    return _like(input, empty(input.shape, **_as(input, dtype, device)), requires_grad)


def zeros_like(
    input: Tensor, dtype: npt.DTypeLike = None, device: Place | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros of the same shape, dtype and device."""
    return _like(input, zeros(input.shape, **_as(input, dtype, device)), requires_grad)


def ones_like(
    input: Tensor, dtype: npt.DTypeLike = None, device: Place | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones of the same shape, dtype and device."""
    return _like(input, ones(input.shape, **_as(input, dtype, device)), requires_grad)


def full_like(
    input: Tensor,
    fill_value: float,
    dtype: npt.DTypeLike = None,
    device: Place | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of the same shape, dtype and device filled with one value."""
    return _like(input, full(input.shape, fill_value, **_as(input, dtype, device)), requires_grad)


def rand_like(
    input: Tensor, dtype: npt.DTypeLike = None, device: Place | None = None, requires_grad: bool = False
) -> Tensor:
    """Random numbers, uniform in [0, 1), of the same shape, dtype and device."""
    if isinstance(input, BatchedTensorBase):
        made = empty_like(input, dtype, device).uniform_()
        return made.requires_grad_() if requires_grad else made
    return rand(input.shape, requires_grad=requires_grad, **_as(input, dtype, device))


def randn_like(
    input: Tensor, dtype: npt.DTypeLike = None, device: Place | None = None, requires_grad: bool = False
) -> Tensor:
    """Random numbers, normal with mean 0 and variance 1, of the same shape, dtype and device."""
    if isinstance(input, BatchedTensorBase):
        made = empty_like(input, dtype, device).normal_()
        return made.requires_grad_() if requires_grad else made
    return randn(input.shape, requires_grad=requires_grad, **_as(input, dtype, device))
