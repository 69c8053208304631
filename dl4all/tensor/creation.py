"""Tensors made from data, of one value, or with the shape of another tensor.

``device="auto"`` takes the best device of the machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import DTypeError
from dl4all.ops.core.arguments import named_cpu
from dl4all.ops.core.dtypes import KINDS_OF_NUMBERS, checked_dtype, converted, default, kind_of
from dl4all.ops.core.limits import check_host_memory, host_memory
from dl4all.ops.core.memory_format import MemoryFormat, check_memory_format
from dl4all.ops.core.op import NUMBERS
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.promotion import check_elements, check_fits
from dl4all.ops.core.tensor_base import FEW_BYTES, DTypeLike, Scalar, Shape, from_host, host_array
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.memory.copy import fill_with, fresh_copy
from dl4all.ops.memory.transfer import upload
from dl4all.scheduler import listeners
from dl4all.scheduler.device.current import device as open_device
from dl4all.tensor.arguments import (
    ArrayLike,
    DeviceLike,
    checked_shape,
    float_dtype,
)
from dl4all.tensor.mixins.interop import array_from_dlpack
from dl4all.tensor.tensor import Tensor

__all__ = [
    "as_tensor",
    "asarray",
    "empty",
    "empty_like",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "scalar_tensor",
    "tensor",
    "zeros",
    "zeros_like",
]


def tensor(
    data: ArrayLike,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of `data`.

    Args:
        data: a number, nested lists, a NumPy array or a tensor.
        dtype: the element type; otherwise an array's own, and for Python numbers the default dtype,
            int64 or bool.
        device: the device of the result.
        requires_grad: whether the result is a leaf that requires gradients.
        pin_memory: accepted for PyTorch's sake, without effect: :func:`dl4all.pin` gives pinned arrays.

    Raises:
        DTypeError: the elements have no type that tensors can have.
        ArgumentError: a number does not fit into an integer `dtype`; elements of arrays and tensors wrap.
        UnknownDeviceError, BackendMissingError, OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.tensor([[1, 2], [3, 4]], dtype="float32", device="cpu")
        tensor([[1., 2.],
               [3., 4.]])
    """
    return _with_grad(_from_array(_elements(data, dtype), device, copy=True), requires_grad)


def _elements(data: ArrayLike, dtype: DTypeLike) -> npt.NDArray[Any]:
    """The elements of a tensor made of `data`, on the host."""
    typed = isinstance(data, (np.ndarray, np.generic, Tensor))
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise DTypeError(f"[tensor] the data is not rectangular: {error}") from None
    if kind_of(array.dtype) not in KINDS_OF_NUMBERS:
        raise DTypeError(f"[tensor] expected numbers, got elements of dtype {array.dtype}")
    target = array.dtype
    if dtype is not None:
        target = checked_dtype("tensor", dtype)
        if not typed:
            check_elements("tensor", array, target)
    elif not typed and target == np.float64:
        target = default.dtype
    if array.dtype != target:
        with np.errstate(all="ignore"):  # what is too large becomes inf, quietly
            array = converted(array, target)
    checked_dtype("tensor", array.dtype)
    return array


def as_tensor(data: ArrayLike, dtype: DTypeLike = None, device: DeviceLike | None = None) -> Tensor:
    """`data` as a tensor: `data` itself if it is a tensor of that dtype on that device, otherwise a new one.

    Args:
        data: a tensor, a number, nested lists or a NumPy array; on the CPU an array's memory is shared.
        dtype: the element type; by default that of the data.
        device: the device of the result; by default a tensor's own, and the best device for all else.

    Raises:
        DTypeError: the elements have no type that tensors can have.

    Example:
        >>> import dl4all as dl
        >>> x = dl.ones(2)
        >>> dl.as_tensor(x) is x, dl.as_tensor([1, 2]).tolist()
        (True, [1, 2])
    """
    if isinstance(data, Tensor):
        wanted = None if dtype is None else checked_dtype("tensor", dtype)
        targets = [target for target in (device, wanted) if target]
        return data.to(*targets) if targets else data
    target_device = "auto" if device is None else device
    if isinstance(data, np.ndarray) and (dtype is None or data.dtype == checked_dtype("tensor", dtype)):
        return from_numpy(data, target_device)
    return tensor(data, dtype, target_device)


asarray = as_tensor


def scalar_tensor(
    s: float, *, dtype: DTypeLike = None, device: DeviceLike = "auto", requires_grad: bool = False
) -> Tensor:
    """A number as a tensor without axes.

    Example:
        >>> import dl4all as dl
        >>> dl.scalar_tensor(2).item()
        2.0
    """
    return tensor(s, float_dtype(dtype), device, requires_grad)


def from_numpy(array: npt.NDArray[Any], device: DeviceLike | None = None) -> Tensor:
    """A tensor with an array's elements; on the CPU it shares a contiguous array's memory.

    Args:
        array: of one of dl4all's dtypes.
        device: the device of the result. Without one it is on the CPU, but nobody named that: where it meets
            tensors of a device, an op takes it along, and ``dl.fallback.report()`` counts that.

    Raises:
        DTypeError: `array` is something else, or its dtype is not one of dl4all's.

    Example:
        >>> import dl4all as dl
        >>> import numpy as np
        >>> array = np.array([1.0, 2.0], np.float32)
        >>> x = dl.from_numpy(array)
        >>> array[0] = 5.0  # the memory is shared
        >>> x.tolist()
        [5.0, 2.0]
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            f"[from_numpy] expected a NumPy array, got {type(array).__name__}; use dl.tensor(...)"
        )
    return _data_on_cpu(array) if device is None else _from_array(array, device, copy=False)


def _data_on_cpu(array: npt.NDArray[Any]) -> Tensor:
    """A tensor on the memory of an array, on the CPU without that being named."""
    checked_dtype("tensor", array.dtype)
    result: Tensor = upload(Tensor, array, open_device("cpu"), copy=False)
    return result


def from_dlpack(array: Any) -> Tensor:
    """A tensor on the memory of another library's array on the CPU, by the DLPack protocol.

    Raises:
        DTypeError: it has no ``__dlpack__``, is not on the CPU, or its dtype is not one of dl4all's.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> dl.from_dlpack(np.ones(2, np.float32)).tolist()
        [1.0, 1.0]
    """
    return _data_on_cpu(array_from_dlpack(array))


def empty(
    *shape: int | Shape,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
    size: Shape | None = None,
) -> Tensor:
    """A tensor with undefined contents, of the default dtype unless another is named.

    Example:
        >>> import dl4all as dl
        >>> dl.empty(2, 3).shape
        (2, 3)
    """
    wanted = checked_shape("empty", shape, size)
    result: Tensor = empty_tensor(Tensor, wanted, float_dtype(dtype), open_device(device or "auto"))
    named_cpu.note(result, device)
    return _with_grad(result, requires_grad)


def full(
    size: Shape,
    fill_value: Scalar,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
) -> Tensor:
    """A tensor filled with one value; without `dtype` the default dtype, int64 or bool, as the value is.

    Raises:
        ArgumentError: a size is not an int of at least 0, or the value does not fit into an integer dtype.
        DTypeError: the value is not a number.
        OutOfMemoryError

    Example:
        >>> import dl4all as dl
        >>> dl.full((2, 2), 7.0).tolist()
        [[7.0, 7.0], [7.0, 7.0]]
    """
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    if dtype is not None and isinstance(fill_value, NUMBERS):
        check_fits("full", fill_value, checked_dtype("tensor", dtype))
    value = _elements(fill_value, dtype)
    if value.ndim:
        raise DTypeError(f"[full] expected a number, got {type(fill_value).__name__}")
    return _with_grad(filled("full", checked_shape("full", (size,)), value, device), requires_grad)


def zeros(
    *shape: int | Shape,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
    size: Shape | None = None,
) -> Tensor:
    """A tensor of zeros, of the default dtype unless another is named.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros(2, dtype=dl.int64).tolist()
        [0, 0]
    """
    wanted = checked_shape("zeros", shape, size)
    return _with_grad(filled("zeros", wanted, np.zeros((), float_dtype(dtype)), device), requires_grad)


def ones(
    *shape: int | Shape,
    dtype: DTypeLike = None,
    device: DeviceLike | None = "auto",
    requires_grad: bool = False,
    size: Shape | None = None,
) -> Tensor:
    """A tensor of ones, of the default dtype unless another is named.

    Example:
        >>> import dl4all as dl
        >>> dl.ones(2, 2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    wanted = checked_shape("ones", shape, size)
    return _with_grad(filled("ones", wanted, np.ones((), float_dtype(dtype)), device), requires_grad)


def filled(name: str, shape: Shape, value: npt.NDArray[np.generic], device: DeviceLike | None) -> Tensor:
    """A tensor of one value, given as a 0-d array of the tensor's dtype."""
    target = open_device(device or "auto")
    checked_dtype("tensor", value.dtype)
    if target.is_host:
        if 0 < math.prod(shape) * value.itemsize <= FEW_BYTES and not listeners.captured():
            small: Tensor = empty_tensor(Tensor, shape, value.dtype, target, name)
            host_array(small)[...] = value
            named_cpu.note(small, device)
            return small
        check_host_memory(name, shape, value.dtype, target.info.memory)
        with host_memory(name):
            array = np.full(shape, value) if value.any() else np.zeros(shape, value.dtype)  # lazy
        made: Tensor = from_host(Tensor, array, target, copy=False)
        named_cpu.note(made, device)
        return made
    result: Tensor = empty_tensor(Tensor, shape, value.dtype, target)
    fill_with(result, value)
    return result


def _with_grad(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor


def _from_array(array: npt.NDArray[Any], device: DeviceLike | None, *, copy: bool) -> Tensor:
    checked_dtype("tensor", array.dtype)
    result: Tensor = upload(Tensor, array, open_device(device or "auto"), copy=copy)
    named_cpu.note(result, device)
    return result


# With the shape of another tensor


def _dtype_and_device(input: Tensor, dtype: DTypeLike, device: DeviceLike | None) -> dict[str, Any]:
    """The keyword arguments `dtype` and `device`; where they are None, those of the input."""
    return {
        "dtype": input.dtype if dtype is None else dtype,
        "device": input.device if device is None else device,
    }


def _like(input: Tensor, result: Tensor, requires_grad: bool) -> Tensor:
    """The result; within ``vmap`` with separate memory for each sample, which may then change it."""
    if isinstance(input, BatchedTensorBase):
        result = fresh_copy(input.match_levels([result])[0])  # type: ignore[assignment]
    if result.device is input.device:
        result.storage.named_cpu = input.storage.named_cpu
    return _with_grad(result, requires_grad)


def empty_like(
    input: Tensor,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:
    """A tensor of the same shape, dtype and device with undefined contents.

    Example:
        >>> import dl4all as dl
        >>> dl.empty_like(dl.ones(2, 3)).shape
        (2, 3)
    """
    check_memory_format("empty_like", memory_format)
    return _like(input, empty(input.shape, **_dtype_and_device(input, dtype, device)), requires_grad)


def zeros_like(
    input: Tensor,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:
    """A tensor of zeros of the same shape, dtype and device.

    Example:
        >>> import dl4all as dl
        >>> dl.zeros_like(dl.tensor([3.0, 4.0])).tolist()
        [0.0, 0.0]
    """
    check_memory_format("zeros_like", memory_format)
    return _like(input, zeros(input.shape, **_dtype_and_device(input, dtype, device)), requires_grad)


def ones_like(
    input: Tensor,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:
    """A tensor of ones of the same shape, dtype and device.

    Example:
        >>> import dl4all as dl
        >>> dl.ones_like(dl.tensor([3, 4])).tolist()
        [1, 1]
    """
    check_memory_format("ones_like", memory_format)
    return _like(input, ones(input.shape, **_dtype_and_device(input, dtype, device)), requires_grad)


def full_like(
    input: Tensor,
    fill_value: Scalar,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:
    """A tensor of the same shape, dtype and device filled with one value.

    Example:
        >>> import dl4all as dl
        >>> dl.full_like(dl.tensor([1, 2]), 7).tolist()
        [7, 7]
    """
    check_memory_format("full_like", memory_format)
    return _like(
        input, full(input.shape, fill_value, **_dtype_and_device(input, dtype, device)), requires_grad
    )
