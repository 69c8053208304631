"""The base class of tensors: strided elements in a device's memory."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.allocator.storage import Storage
from dl4all.errors import OutOfMemoryError
from dl4all.ops.core.dtypes import kind_of
from dl4all.runtime.cpu.buffer import aligned_copy
from dl4all.scheduler import listeners
from dl4all.scheduler.device.device import Device

Array: TypeAlias = Any
"""Annotates the array operands of an op: its body gets NumPy arrays, its callers pass tensors."""

Shape: TypeAlias = tuple[int, ...]


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple that knows how many elements it stands for.

    Slices and sums of it are plain tuples: a method in their place would be paid for by every op.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2, 3).shape.numel(), dl.zeros(2, 3).shape == (2, 3)
        (6, True)
    """

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)


Scalar: TypeAlias = int | float | bool
"""A Python number."""

Dims: TypeAlias = int | Sequence[int] | None
"""One axis, several axes, or None for all."""

DTypeLike: TypeAlias = npt.DTypeLike | None
"""An element type: ``"float32"``, ``np.float32``, ``dl.float32``; None for the default."""

FEW_BYTES = 1 << 14
"""Up to here memory that came back is quicker written than new memory is counted and kept."""

COMPUTED_ELEMENTS = 2**31
"""Functions that cannot fold the repeated elements of a view compute with fewer: kernels count in 32 bits."""


@functools.lru_cache(128)  # more shapes than a step of a network has
def contiguous_strides(shape: Shape) -> Shape:
    """The strides of a row-major array, in elements.

    >>> contiguous_strides((2, 3, 5))
    (15, 5, 1)
    """
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= int(size)  # NumPy's integers are equal keys of the cache
    return tuple(reversed(strides))


class TensorBase:
    """A view of a storage by shape, strides and offset; strides and offset count elements."""

    __slots__ = {  # with texts, which help() shows
        "__dict__": "What a program notes on the tensor, such as ``p.no_decay = True``.",
        "__weakref__": "The list of weak references.",
        "device": "The device that has the elements.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> str(dl.ones(2, device='cpu').device)\n    'cpu'",
        "dtype": "The type of the elements, one of NumPy's dtypes.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.tensor([1.0]).dtype\n    dtype('float32')",
        "grad_meta": "What differentiation knows of the tensor, or None."
        "\n\nExample:\n    >>> import dl4all as dl\n    >>> dl.ones(2).grad_meta is None\n    True",
        "offset": "The place of the first element in the storage, in elements.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.arange(4)[2:].offset\n    2",
        "shape": "The sizes of the axes.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.ones(2, 3).shape\n    (2, 3)",
        "storage": "The memory that the tensor and its views share.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> x = dl.ones(4)\n"
        "    >>> x[2:].storage is x.storage\n    True",
        "strides": "How many elements of the storage lie between neighbours along each axis.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.ones(2, 3).strides\n    (3, 1)",
        "view_of": "For a view, the tensor it is a view of, weakly, and when it was made; else None.\n\n"
        "Example:\n    >>> import dl4all as dl\n    >>> dl.ones(2).view_of is None\n    True",
    }

    result_class: ClassVar[type[TensorBase]]
    """The class of an op's result; for subclasses of Tensor it is Tensor."""

    shape: Size

    def __init__(
        self,
        storage: Any = None,  # a Storage, a Shape, a dtype and a Device, but where users call the class
        shape: Any = None,
        dtype: Any = None,
        device: Any = None,
        strides: Shape | None = None,
        offset: int = 0,
    ) -> None:
        if shape.__class__ is not Size:
            if shape.__class__ is not tuple or storage is None:
                self._from_sizes_or_data((storage, shape, dtype, device, strides))
                return
            shape = Size(shape)
        self.storage: Storage = storage
        self.shape = shape
        self.dtype: np.dtype[Any] = dtype
        self.device: Device = device
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.offset = offset
        self.grad_meta: Any = None  # a tape.GradMeta if the tensor takes part in differentiation
        # For a view: its base, and `storage.history_version` at the time when it was made.
        self.view_of: tuple[weakref.ref[TensorBase], int] | None = None

    def _from_sizes_or_data(self, arguments: tuple[Any, ...]) -> None:
        """Become what ``dl.Tensor(2, 3)`` or ``dl.Tensor([1, 2])`` asks for, where users call the class."""
        raise NotImplementedError

    def numel(self) -> int:
        """The number of elements.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).numel()
            6
        """
        return math.prod(self.shape)

    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps; strides of axes of size 1 do not matter.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, 3).T.is_contiguous()
            False
        """
        expected = contiguous_strides(self.shape)
        if self.strides == expected:
            return True
        return 0 in self.shape or all(
            size == 1 or stride == contiguous
            for size, stride, contiguous in zip(self.shape, self.strides, expected, strict=True)
        )

    def strided_view(self, shape: Shape, strides: Shape, offset: int) -> Any:
        """A view of the same memory; strides and offset count elements. :func:`dl4all.as_strided` checks
        them, and has a gradient.

        Example:
            >>> import dl4all as dl
            >>> dl.arange(6).strided_view((2, 2), (3, 1), 1).tolist()
            [[1, 2], [4, 5]]
        """
        view = object.__new__(type(self).result_class)  # without __init__: views are made in most ops
        view.storage, view.dtype, view.device = self.storage, self.dtype, self.device
        view.shape = shape if shape.__class__ is Size else Size(shape)
        view.strides, view.offset, view.grad_meta = strides, offset, None
        base = None if self.view_of is None or self.view_of[0]() is None else self.view_of[0]
        view.view_of = (weakref.ref(self) if base is None else base, self.storage.history_version)
        return view

    def on_host(self, *, each: bool = True) -> npt.NDArray[Any]:
        """The elements as a NumPy array, which shares the memory on the CPU and is a copy elsewhere.

        Args:
            each: whether the caller looks at each element.

        Raises:
            OutOfMemoryError: it does, and the tensor is a view that repeats elements too often.

        Example:
            >>> import dl4all as dl
            >>> dl.ones(2, device="cpu").on_host
            <bound method TensorBase.on_host of tensor([1., 1.])>
        """
        count = math.prod(self.shape)
        if not count:  # NumPy refuses an offset past the end of empty memory
            return np.empty(self.shape, self.dtype)
        if each and count >= COMPUTED_ELEMENTS:
            check_repeated("on_host", self)
        if self.device.is_host:
            if listeners.active:
                listeners.read(self.device)
            return host_array(self)
        start, stop = self.byte_range()
        data = np.empty(stop - start, np.uint8)
        self.device.download(self.storage, data, start)
        return self.strided(start)(data)

    def byte_range(self) -> tuple[int, int]:
        """The first byte of the storage that the elements lie in, at the start of a word, and the end.

        Example:
            >>> import dl4all as dl
            >>> x = dl.ones(4)
            >>> start, end = x[1:3].byte_range()
            >>> end - start
            8
        """
        extents = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        first = self.offset + sum(extent for extent in extents if extent < 0)
        last = self.offset + sum(extent for extent in extents if extent > 0)
        itemsize = self.dtype.itemsize
        return first * itemsize // 4 * 4, (last + 1) * itemsize

    def strided(self, start: int = 0) -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[Any]]:
        """A view of the elements in the storage's bytes from `start` on; it does not keep the storage.

        Example:
            >>> import dl4all as dl
            >>> import numpy as np
            >>> x = dl.arange(4, device="cpu")[::2]
            >>> x.strided()(np.arange(4).view(np.uint8)).tolist()
            [0, 2]
        """
        itemsize = self.dtype.itemsize
        return functools.partial(
            np.ndarray,
            self.shape,
            self.dtype,
            offset=self.offset * itemsize - start,
            strides=tuple(stride * itemsize for stride in self.strides),
        )


def host_int(value: Any) -> Any:
    """A tensor of one integer as an int; anything else as it is."""
    if isinstance(value, TensorBase) and kind_of(value.dtype) in "iu" and value.numel() == 1:
        return int(value.on_host().item())
    return value


def host_array(tensor: TensorBase) -> npt.NDArray[Any]:
    """The elements of a tensor on the CPU, in its own memory; for work that captures are told of."""
    shape, dtype, storage = tensor.shape, tensor.dtype, tensor.storage
    if 0 in shape:
        return np.empty(shape, dtype)
    if storage.pending is not None:
        storage.settle()
    itemsize = dtype.itemsize
    strides = tuple([stride * itemsize for stride in tensor.strides])
    return np.ndarray(shape, dtype, storage.buffer.data, tensor.offset * itemsize, strides)


def check_repeated(name: str, *operands: Any) -> None:
    """Raise where something would compute with each element of a view that repeats few elements endlessly.

    Raises:
        OutOfMemoryError: a view has too many elements, and its memory does not.
    """
    for operand in operands:
        if isinstance(operand, TensorBase) and math.prod(operand.shape) >= COMPUTED_ELEMENTS:
            nbytes = operand.numel() * operand.dtype.itemsize
            if nbytes > operand.storage.nbytes:
                raise OutOfMemoryError(
                    f"[{name}] a view of shape {operand.shape} repeats elements, and to compute with each "
                    f"takes a copy of {nbytes} bytes; use a part of it"
                )


def from_host(
    cls: type[TensorBase], array: npt.NDArray[Any], device: Device, *, copy: bool, tag: str = "upload"
) -> Any:
    """A tensor of class `cls` with the array's elements; with ``copy=False`` the CPU uses its memory."""
    shape = array.shape  # np.ascontiguousarray would turn () into (1,)
    if device.is_host:
        if copy and 0 < array.nbytes <= FEW_BYTES and not listeners.captured():
            result = cls(device.allocate(array.nbytes, tag), shape, array.dtype, device)
            host_array(result)[...] = array
            return result
        memory = aligned_copy(array) if copy else np.ascontiguousarray(array)
        return cls(device.memory.adopt(memory, tag), shape, array.dtype, device)
    return cls(device.upload(array), shape, array.dtype, device)
