"""What every op takes and returns: a shape, a dtype and a piece of a device's memory."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.scheduler.device import Device

Array: TypeAlias = Any
"""Marks the array operands in an op's signature: NumPy arrays inside its body, tensors outside."""

Shape: TypeAlias = tuple[int, ...]

Scalar: TypeAlias = int | float | bool
"""A Python number."""

Dims: TypeAlias = int | Sequence[int] | None
"""One axis, several, or all."""

DTypeLike: TypeAlias = npt.DTypeLike
"""What names an element type: ``"float32"``, ``np.float32``, ``dl.float32``; None for the usual one."""

DTYPES = tuple(
    np.dtype(name)
    for name in (
        "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool",
    )
)  # fmt: skip


def contiguous_strides(shape: Shape) -> Shape:
    """Strides, in elements, of a row-major array.

    >>> contiguous_strides((2, 3, 5))
    (15, 5, 1)
    """
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class TensorBase:
    """Elements of `storage`, found through `shape`, `strides` and `offset` (both in elements)."""

    __slots__ = (
        "__weakref__", "device", "dtype", "grad_meta", "offset", "shape", "storage", "strides", "view_of",
    )  # fmt: skip

    result_class: ClassVar[type[TensorBase]]
    """What ops return when given this class: subclasses of tensors do not spread."""

    def __init__(
        self,
        storage: Storage,
        shape: Shape,
        dtype: np.dtype[Any],
        device: Device,
        strides: Shape | None = None,
        offset: int = 0,
    ) -> None:
        self.storage = storage
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.offset = offset
        self.grad_meta: Any = None  # a tape.GradMeta where gradients are wanted
        # Of a view: the tensor it was made of, and `storage.history_version` of that time.
        self.view_of: tuple[weakref.ref[TensorBase], int] | None = None

    def numel(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps. Strides of size-1 axes do not matter."""
        expected = contiguous_strides(self.shape)
        return 0 in self.shape or all(
            size == 1 or stride == want
            for size, stride, want in zip(self.shape, self.strides, expected, strict=True)
        )

    def as_strided(self, shape: Shape, strides: Shape, offset: int) -> Any:
        """A view of the same memory; strides and offset count elements."""
        made = type(self).result_class(self.storage, shape, self.dtype, self.device, strides, offset)
        whole = None if self.view_of is None or self.view_of[0]() is None else self.view_of[0]
        made.view_of = (weakref.ref(self) if whole is None else whole, self.storage.history_version)
        return made

    def on_host(self) -> npt.NDArray[Any]:
        """The elements as a NumPy array: the memory itself on the CPU, elsewhere a copy."""
        if 0 in self.shape:  # NumPy refuses an offset past the end even where there is nothing to read
            return np.empty(self.shape, self.dtype)
        itemsize, start = self.dtype.itemsize, 0
        if self.device.is_host:
            data = self.storage.buffer.data
        else:
            steps = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
            start = (self.offset + sum(step for step in steps if step < 0)) * itemsize // 4 * 4
            stop = (self.offset + sum(step for step in steps if step > 0) + 1) * itemsize
            data = np.empty(stop - start, np.uint8)
            self.device.download(self.storage, data, start)
        return np.ndarray(
            self.shape,
            self.dtype,
            buffer=data,
            offset=self.offset * itemsize - start,
            strides=tuple(stride * itemsize for stride in self.strides),
        )


def from_host(
    cls: type[TensorBase], array: npt.NDArray[Any], device: Device, *, copy: bool, tag: str = "upload"
) -> Any:
    """A tensor of class `cls` with the array's elements; with ``copy=False`` the CPU keeps its memory."""
    shape = array.shape  # np.ascontiguousarray would turn () into (1,)
    if device.is_host:
        kept = np.array(array, order="C") if copy else np.ascontiguousarray(array)
        return cls(device.adopt(kept, tag), shape, array.dtype, device)
    return cls(device.upload(array), shape, array.dtype, device)
