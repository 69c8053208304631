"""Conversions of dtype, uses of a tensor as a Python number, and what NumPy asks of tensors."""

from __future__ import annotations

import operator
from typing import Any, TypeVar, overload

from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.kernels.host_work import condition
from dl4all.ops.core.memory_format import MemoryFormat
from dl4all.ops.core.tensor_base import DTypeLike, TensorBase
from dl4all.scheduler.device.current import cuda_device
from dl4all.tensor.arguments import NamedDType
from dl4all.tensor.mixins import numpy_protocols

T = TypeVar("T", bound="Conversions")

CLASS_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
"""The dtypes of PyTorch's classes of tensors, ``torch.FloatTensor`` and so on."""


class Conversions(TensorBase):
    """``index``, ``format``, NumPy's functions, and the dtypes by their names in PyTorch."""

    __slots__ = ()

    __array_function__ = numpy_protocols.array_function
    __array_ufunc__ = numpy_protocols.array_ufunc

    def __bool__(self: Any) -> bool:
        """The one element as a bool; waits for the device.

        Example:
            >>> import dl4all as dl
            >>> bool(dl.tensor([2.0]))
            True
        """
        return condition(self)

    def __float__(self: Any) -> float:
        """The one element as a float; waits for the device.

        Example:
            >>> import dl4all as dl
            >>> float(dl.tensor([2]))
            2.0
        """
        return float(self.item())

    def __int__(self: Any) -> int:
        """The one element as an int; waits for the device.

        Example:
            >>> import dl4all as dl
            >>> int(dl.tensor([2.5]))
            2
        """
        return int(self.item())

    def __complex__(self: Any) -> complex:
        """The one element as a complex number; waits for the device.

        Example:
            >>> import dl4all as dl
            >>> complex(dl.tensor([2.0]))
            (2+0j)
        """
        return complex(self.item())

    def __index__(self: Any) -> int:
        """The only element, as ``range``, lists and sizes take it.

        Raises:
            DTypeError: it is no integer, or not the only one.

        Example:
            >>> import dl4all as dl
            >>> [10, 20, 30][dl.tensor(1)]
            20
        """
        if kind_of(self.dtype) not in "biu" or self.numel() != 1:
            raise DTypeError(
                "[index] only a tensor with a single integer stands for an int, "
                f"got shape {self.shape} and {self.dtype}; use int(tensor)"
            )
        return operator.index(self.item())

    def __format__(self: Any, format_spec: str) -> str:
        """The only element of a tensor without axes as a number: ``f"{loss:.4f}"``."""
        if not self.shape and type(self) is type(self).result_class:
            return format(self.item(), format_spec)
        return object.__format__(self, format_spec)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """The tensor on the accelerator, which ``"cuda"`` names, or on the accelerator of a number.

        Raises:
            BackendMissingError: there is no accelerator (:mod:`dl4all.cuda`).
            UnknownDeviceError: there is none of that number.

        Example:
            >>> import dl4all as dl
            >>> x = dl.ones(2)
            >>> if dl.cuda.is_available():
            ...     x = x.cuda()
        """
        return self.to(cuda_device("Tensor.cuda", device), non_blocking=non_blocking)

    # Dtypes: last, because they hide the names of Python's types in annotations

    @overload
    def type(self, dtype: None = None, non_blocking: bool = False) -> str: ...

    @overload
    def type(self: T, dtype: NamedDType, non_blocking: bool = False) -> T: ...

    def type(self: Any, dtype: DTypeLike = None, non_blocking: bool = False) -> Any:
        """The elements as another dtype, which may be a class such as ``dl.FloatTensor`` or PyTorch's name of
        one, ``"torch.FloatTensor"``; without one, the name of the tensor's own.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1]).type(dl.float32).dtype
            dtype('float32')

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1]).type(dl.float32).dtype
            dtype('float32')
        """
        if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
            return self.to(cuda_device(dtype), _dtype_of_class(dtype.replace("cuda.", "", 1)))
        if isinstance(dtype, str) and dtype.startswith("torch."):
            dtype = _dtype_of_class(dtype)
        if getattr(dtype, "on_accelerator", False):
            return self.to(cuda_device("type"), dtype)
        return self.dtype.name if dtype is None else self.to(dtype=dtype)

    def type_as(self: T, other: TensorBase) -> T:
        """The elements as the dtype of another tensor, on its device.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1]).type_as(dl.tensor([1.0])).dtype
            dtype('float32')
        """
        return self._as(other)

    def double(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as float64.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1], device="cpu").double().dtype
            dtype('float64')
        """
        return self._as("float64", memory_format)

    def half(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as float16.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1]).half().dtype
            dtype('float16')
        """
        return self._as("float16", memory_format)

    def bfloat16(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as bfloat16, the upper half of float32: its range, and 8 bits of precision.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.001]).bfloat16()
            tensor([1.], dtype=bfloat16)
        """
        return self._as("bfloat16", memory_format)

    def long(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as int64.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.5]).long().tolist()
            [1]
        """
        return self._as("int64", memory_format)

    def short(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as int16.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.5]).short().dtype
            dtype('int16')
        """
        return self._as("int16", memory_format)

    def char(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as int8.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.5]).char().dtype
            dtype('int8')
        """
        return self._as("int8", memory_format)

    def byte(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as uint8.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.5]).byte().dtype
            dtype('uint8')
        """
        return self._as("uint8", memory_format)

    def float(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as float32.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1]).float().dtype
            dtype('float32')
        """
        return self._as("float32", memory_format)

    def int(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as int32.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([1.5]).int().tolist()
            [1]
        """
        return self._as("int32", memory_format)

    def bool(self: T, memory_format: MemoryFormat = None) -> T:
        """The elements as bool.

        Example:
            >>> import dl4all as dl
            >>> dl.tensor([0, 2]).bool().tolist()
            [False, True]
        """
        return self._as("bool", memory_format)

    def _as(self: T, target: Any, memory_format: MemoryFormat = None) -> T:
        converted: T = _to(self, target, memory_format)
        return converted


def _to(tensor: Any, target: Any, memory_format: MemoryFormat) -> Any:
    return tensor.to(target, memory_format=memory_format)


def _dtype_of_class(name: str) -> str:
    """The dtype of a class of tensors that is named as in PyTorch.

    >>> _dtype_of_class("torch.LongTensor")
    'int64'
    """
    words = name.removeprefix("torch.").removesuffix("Tensor")
    if words not in CLASS_DTYPES:
        raise DTypeError(
            f"[type] {name!r} names no class of tensors that dl4all has: expected one of "
            f"{', '.join(f'torch.{word}Tensor' for word in CLASS_DTYPES)}, or a dtype"
        )
    return CLASS_DTYPES[words]
