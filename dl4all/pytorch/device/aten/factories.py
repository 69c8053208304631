"""Tensors made of numbers alone: ranges, identity matrices, indices of triangles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dl4all.ops.core.dtypes import kind_of
from dl4all.pytorch.device.devices import device_at, index_of
from dl4all.pytorch.device.dispatch.registration import native
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.memory import NotNative, deliver, device_of, wrap
from dl4all.tensor import ranges
from dl4all.tensor.creation import from_numpy


def _dtype(dtype: torch.dtype) -> np.dtype[Any]:
    own = memory.NUMPY_DTYPES.get(dtype)
    if own is None:
        raise NotNative(f"there are no kernels for {dtype}")
    return own


@native("arange.start_out")
def arange(start: Any, end: Any, step: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    dtype = _dtype(out.dtype)
    if kind_of(dtype) != "f" and not all(isinstance(number, int) for number in (start, end, step)):
        if dtype != np.int64 or not all(map(math.isfinite, (start, end, step))) or not int(step):
            raise NotNative("a range of integers between fractions")
        start, end, step = int(start), int(end), int(step)  # as PyTorch does, for int64 alone
    return deliver(ranges.arange(start, end, step, dtype=dtype, device=device_of(out)), out)


@native("arange.out")
def arange_to(end: Any, *, out: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = arange(0, end, out=out)
    return result


@native("range.out")
def inclusive_range(start: Any, end: Any, step: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    if not step or not all(map(math.isfinite, (start, end, step))):
        raise NotNative(f"a range from {start} to {end} by {step}")
    count = math.floor((end - start) / step) + 1
    numbers = start + np.arange(max(count, 0)) * step
    return deliver(from_numpy(numbers.astype(_dtype(out.dtype)), device_of(out)), out)


@native("linspace.out")
def linspace(start: Any, end: Any, steps: int, *, out: torch.Tensor) -> torch.Tensor:
    dtype = _float_dtype(out.dtype)
    return deliver(ranges.linspace(start, end, steps, dtype=dtype, device=device_of(out)), out)


@native("logspace.out")
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: torch.Tensor) -> torch.Tensor:
    dtype = _float_dtype(out.dtype)
    return deliver(ranges.logspace(start, end, steps, base, dtype=dtype, device=device_of(out)), out)


def _float_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    own = _dtype(dtype)
    if kind_of(own) != "f":
        raise NotNative(f"equal distances between numbers of {own}")
    return own


@native("eye.m_out")
def eye(n: int, m: int, *, out: torch.Tensor) -> torch.Tensor:
    return deliver(ranges.eye(n, m, dtype=_dtype(out.dtype), device=device_of(out)), out)


@native("eye.out")
def square_eye(n: int, *, out: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = eye(n, n, out=out)
    return result


@native("_efficientzerotensor")
def zero_tensor(size: Sequence[int], **options: Any) -> torch.Tensor:
    """Zeros in memory: what PyTorch's tensors of zeros without memory stand for."""
    return torch.zeros(size, **options)


def _triangle(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    def indices(
        row: int,
        col: int,
        offset: int = 0,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> torch.Tensor:
        own = _dtype(dtype or torch.int64)
        return wrap(function(row, col, offset, dtype=own, device=device_at(index_of(device))))

    return indices


native("tril_indices")(_triangle(ranges.tril_indices))
native("triu_indices")(_triangle(ranges.triu_indices))
