"""Classes of tensors as old scripts name them: ``Tensor(2, 3)``, ``FloatTensor([1.0])``, ``LongTensor``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import Size
from dl4all.scheduler.device.current import cuda_device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import ArrayLike, DeviceLike
from dl4all.tensor.creation import empty, tensor
from dl4all.tensor.dtypes import get_default_dtype
from dl4all.tensor.tensor import Tensor

__all__ = [
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]

FOUR_SIZES = 4


def sizes_or_data(arguments: tuple[Any, ...], dtype: Any = None) -> Tensor:
    """The tensor that a call of a class asks for: with these sizes, or with these elements.

    Args:
        arguments: up to four ints and a device, with None for what was not given; or the shape of a tensor,
            nested lists of numbers, an array or a tensor, alone. A tuple that is no tensor's shape is data.
        dtype: the default dtype, if it is None.

    Raises:
        ArgumentError: there are more sizes, or both sizes and data.
    """
    given = [argument for argument in arguments if argument is not None]
    device: DeviceLike = "auto"
    if given and isinstance(given[-1], (str, Device)):
        device = given.pop()
    wanted = get_default_dtype() if dtype is None else dtype
    if len(given) == 1 and isinstance(given[0], Size):
        return empty(given[0], dtype=wanted, device=device)
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        return tensor(given[0], wanted, given[0].device if isinstance(given[0], Tensor) else device)
    if len(given) > FOUR_SIZES:
        raise ArgumentError("[Tensor] a call of the class takes four sizes; use dl.empty(...) for more")
    return empty(tuple(given) if given else (0,), dtype=wanted, device=device)


class TensorType:
    """A class of tensors of one dtype, for calls and for ``isinstance``; results are plain tensors."""

    on_accelerator = False

    def __init__(self, name: str, dtype: str) -> None:
        self.__name__ = name
        self.dtype = np.dtype(dtype)
        self.__doc__ = f"""Tensors of {dtype}: with sizes, undefined contents; with data, a copy.

    Example:
        >>> import dl4all as dl
        >>> dl.{name}([1, 0]).dtype.name, dl.{name}(2, 3).shape
        ({dtype!r}, (2, 3))
        >>> isinstance(dl.zeros(2, dtype={dtype!r}), dl.{name})
        True
    """

    def __repr__(self) -> str:
        return f"dl4all.{self.__name__}"

    def __call__(self, *sizes_or_array: ArrayLike, device: DeviceLike | None = None) -> Tensor:
        return sizes_or_data((*sizes_or_array, device), self.dtype)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == self.dtype


FloatTensor: Any = TensorType("FloatTensor", "float32")
DoubleTensor: Any = TensorType("DoubleTensor", "float64")
HalfTensor: Any = TensorType("HalfTensor", "float16")
LongTensor: Any = TensorType("LongTensor", "int64")
IntTensor: Any = TensorType("IntTensor", "int32")
ShortTensor: Any = TensorType("ShortTensor", "int16")
CharTensor: Any = TensorType("CharTensor", "int8")
ByteTensor: Any = TensorType("ByteTensor", "uint8")
BoolTensor: Any = TensorType("BoolTensor", "bool")


class CudaTensorType(TensorType):
    """A class of tensors on the accelerator, which ``"cuda"`` names."""

    on_accelerator = True

    def __call__(self, *sizes_or_array: ArrayLike, device: DeviceLike | None = None) -> Tensor:
        return sizes_or_data((*sizes_or_array, cuda_device(self.__name__, device)), self.dtype)

    def __instancecheck__(self, instance: object) -> bool:
        return super().__instancecheck__(instance) and isinstance(instance, Tensor) and instance.is_cuda


primitives.sizes_or_data = sizes_or_data
