"""Methods that make a tensor beside another one: of another element type, or of another shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.strides import sizes
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.memory.copy import fill_with, new_like
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device


def converter(name: str) -> Callable[[Any], Any]:
    """The method that converts to an element type; the tensor itself where that is its own."""

    def convert(self: Any) -> Any:
        return self.to(name)

    convert.__doc__ = f"The elements as {name}."
    return convert


def as_type(self: Any, dtype: npt.DTypeLike = None) -> Any:
    """The elements as another dtype; without one, the name of their own."""
    return self.dtype.name if dtype is None else self.to(dtype=dtype)


def _made(
    self: TensorBase, name: str, size: tuple[Any, ...], dtype: npt.DTypeLike, place: str | Device | None
) -> Any:
    shape: Shape = sizes(name, size)
    kind = self.dtype if dtype is None else np.dtype(dtype)
    there = self.device if place is None else device(place)
    if there is self.device:
        return new_like(self, shape, kind)
    return empty_tensor(type(self).result_class, shape, kind, there)


def new_empty(self: Any, *size: Any, dtype: npt.DTypeLike = None, device: str | Device | None = None) -> Any:
    """A tensor of another shape, with undefined contents, by default of this one's dtype and device."""
    return _made(self, "new_empty", size, dtype, device)


def new_zeros(self: Any, *size: Any, dtype: npt.DTypeLike = None, device: str | Device | None = None) -> Any:
    """A tensor of zeros of another shape, by default of this one's dtype and device."""
    return _filled(_made(self, "new_zeros", size, dtype, device), 0)


def new_ones(self: Any, *size: Any, dtype: npt.DTypeLike = None, device: str | Device | None = None) -> Any:
    """A tensor of ones of another shape, by default of this one's dtype and device."""
    return _filled(_made(self, "new_ones", size, dtype, device), 1)


def new_full(
    self: Any,
    size: Any,
    fill_value: Any,
    dtype: npt.DTypeLike = None,
    device: str | Device | None = None,
) -> Any:
    """A tensor of another shape filled with one value, by default of this one's dtype and device."""
    return _filled(_made(self, "new_full", (size,), dtype, device), fill_value)


def _filled(made: Any, value: Any) -> Any:
    fill_with(made, value)
    return made
