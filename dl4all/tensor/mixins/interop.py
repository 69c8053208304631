"""DLPack, Arrow, pickle and deepcopy of tensors."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dl4all.errors import DTypeError, GradientError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.memory.copy import fresh_copy
from dl4all.ops.memory.transfer import download, upload
from dl4all.scheduler.device.current import device as open_device

T = TypeVar("T", bound=TensorBase)

DLPACK_CPU = (1, 0)
"""``kDLCPU`` and the device number, which name the host's memory in DLPack."""


def dlpack_device(tensor: TensorBase) -> tuple[int, int]:
    """The device of the elements in DLPack's terms: its type and its number.

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([1.0], device="cpu").__dlpack_device__()[1]
        0
    """
    return DLPACK_CPU


def dlpack(tensor: TensorBase, **options: Any) -> Any:
    """A DLPack capsule on the tensor's own memory, which must be on the CPU.

    Raises:
        BufferError: the tensor is not on the CPU; the protocol asks for this error.
        GradientError: the tensor requires gradients, which the other library would not know of.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> np.from_dlpack(dl.tensor([1.0, 2.0], device="cpu")).tolist()
        [1.0, 2.0]
    """
    if not tensor.device.is_host:
        raise BufferError(f"[dlpack] the tensor is on {tensor.device}; move it with .cpu()")
    if tensor.grad_meta is not None and tensor.grad_meta.requires_grad:
        raise GradientError("[dlpack] the tensor requires gradients; use .detach()")
    array = tensor.on_host()
    if array.dtype not in DLPACK_CODES:
        return array.__dlpack__(**options)
    capsule = array.view(f"i{array.dtype.itemsize}").__dlpack__(**options)
    _type_code(capsule).value = DLPACK_CODES[array.dtype]
    return capsule


DLPACK_INT = 0
DLPACK_CODES = {BFLOAT16: 4, FLOAT8_E4M3FN: 10, FLOAT8_E5M2: 12}
"""DLPack's codes of the types that NumPy does not have."""
DLPACK_DTYPES = {code: dtype for dtype, code in DLPACK_CODES.items()}

# Where the type code stands in what a capsule of this name points to: behind the data's address, the device
# and the number of axes, which in newer capsules follow 32 bytes of their own.
TYPE_CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 52}


def _type_code(capsule: Any) -> ctypes.c_uint8:
    """The type code in a DLPack capsule: for what it does not have, NumPy exchanges integers as wide.

    Raises:
        ValueError: it is no capsule, or its memory was taken before.
    """
    name_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, address_of.restype = ctypes.c_char_p, ctypes.c_void_p
    name = name_of(ctypes.py_object(capsule))
    if name not in TYPE_CODE_AT:
        raise ValueError(f"a capsule named {name!r}; one can be taken once")
    address = address_of(ctypes.py_object(capsule), ctypes.c_char_p(name))
    return ctypes.c_uint8.from_address(address + TYPE_CODE_AT[name])


@dataclass
class _ExportedOnce:
    """An array whose capsule has been made."""

    capsule: Any
    device: tuple[int, int]

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def array_from_dlpack(source: Any) -> npt.NDArray[Any]:
    """A NumPy array on the memory of an object that has ``__dlpack__``.

    Raises:
        DTypeError: the object has no ``__dlpack__``, or is not on the CPU.
    """
    try:
        device, capsule = source.__dlpack_device__(), source.__dlpack__()
        code = _type_code(capsule)
        dtype = DLPACK_DTYPES.get(code.value)
        if dtype is not None:
            code.value = DLPACK_INT
        array = np.from_dlpack(_ExportedOnce(capsule, device))
        return array if dtype is None else array.view(dtype)
    except (AttributeError, TypeError, BufferError, RuntimeError, ValueError) as error:
        raise DTypeError(f"[from_dlpack] expected an object with __dlpack__ on the CPU: {error}") from None


def arrow_array(tensor: TensorBase, type: Any = None) -> Any:
    """A pyarrow array of the elements, which are copied: numbers, or lists (of lists) of them.

    pyarrow asks for it, and so do pandas and Hugging Face's datasets.

    Args:
        tensor: of shape (N, ...).
        type: the type of pyarrow that is asked for, if any.

    Raises:
        ShapeError: the tensor has no axis.
        DTypeError: pyarrow has no such dtype.

    Example:
        >>> import dl4all as dl
        >>> try:
        ...     import pyarrow
        ...     rows = pyarrow.array(dl.ones(2, 3)).to_pylist()
        ... except ImportError:  # who has no pyarrow does not ask
        ...     rows = dl.ones(2, 3).tolist()
        >>> rows
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    import pyarrow

    if not tensor.shape:
        raise ShapeError("[arrow_array] expected at least one axis, got a single number; use .item()")
    values = np.ascontiguousarray(tensor.on_host())
    try:
        array = pyarrow.array(values.reshape(-1))
    except pyarrow.ArrowException as error:
        raise DTypeError(f"[arrow_array] pyarrow has no {tensor.dtype}: {error}; use .float()") from None
    lists = pyarrow.ListArray if values.size < 2**31 else pyarrow.LargeListArray  # offsets of 4 or 8 bytes
    for axis in reversed(range(1, values.ndim)):
        rows, size = math.prod(values.shape[:axis]), values.shape[axis]
        array = lists.from_arrays(np.arange(rows + 1) * size, array)
    return array if type is None else array.cast(type)


def reduce(tensor: TensorBase) -> tuple[Any, ...]:
    """``__reduce__``: pickle stores the elements, the device's name, and whether gradients are required.

    Raises:
        GradientError: the tensor has a history, which cannot be stored.
    """
    _check_leaf("pickle", tensor)
    requires_grad = tensor.grad_meta is not None and tensor.grad_meta.requires_grad
    array = np.ascontiguousarray(download(tensor)).reshape(tensor.shape)
    return rebuild, (type(tensor), array, str(tensor.device), requires_grad)


def rebuild(cls: type[TensorBase], array: npt.NDArray[Any], device: str, requires_grad: bool) -> TensorBase:
    """The tensor that :func:`reduce` has described.

    Raises:
        UnknownDeviceError, BackendMissingError: this machine does not have its device.
    """
    result = _as_class(cls, upload(cls.result_class, array, open_device(device), copy=True))
    if requires_grad:
        result.grad_meta = tape.GradMeta()
        result.grad_meta.requires_grad = True
    return result


def deepcopy(tensor: T, memo: dict[int, Any]) -> T:
    """``__deepcopy__``: a copy with memory of its own, and a copy of its gradient.

    Raises:
        GradientError: the tensor has a history, which cannot be copied.

    Example:
        >>> import dl4all as dl
        >>> import copy
        >>> x = dl.tensor([1.0])
        >>> y = copy.deepcopy(x)
        >>> y.add_(1)
        tensor([2.])
        >>> x.tolist(), y.tolist()
        ([1.0], [2.0])
    """
    _check_leaf("deepcopy", tensor)
    if id(tensor) not in memo:
        result = _as_class(type(tensor), fresh_copy(tape.alias(tensor)))
        memo[id(tensor)] = result
        if tensor.grad_meta is not None:
            result.grad_meta = tape.GradMeta()
            result.grad_meta.requires_grad = tensor.grad_meta.requires_grad
            if tensor.grad_meta.grad is not None:
                result.grad_meta.grad = deepcopy(tensor.grad_meta.grad, memo)
    copied: T = memo[id(tensor)]
    return copied


def _check_leaf(name: str, tensor: TensorBase) -> None:
    if tensor.grad_meta is not None and tensor.grad_meta.node is not None:
        raise GradientError(f"[{name}] an op made this tensor and gradients flow through it; use .detach()")


def _as_class(cls: type[T], tensor: TensorBase) -> T:
    """A tensor as an instance of a subclass, without a call of the subclass's ``__init__``."""
    result = cls.__new__(cls)
    TensorBase.__init__(result, tensor.storage, tensor.shape, tensor.dtype, tensor.device)
    return result
