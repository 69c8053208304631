"""PyTorch tensors over dl4all's memory, and both libraries' views of it.

A tensor on ``dlall`` is a plain ``torch.Tensor`` whose ``UntypedStorage`` has an attribute ``memory``: the
dl4all storage with its bytes. PyTorch keeps the attribute exactly as long as its own storage, so views,
detached tensors and parameters share it. Shapes, strides and offsets are PyTorch's; both libraries count
them in elements, so a tensor of one is a view of the other without a copy.

The address that PyTorch sees is unique and no processor can map it: code that would read elements through it
faults instead of computing with garbage.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._prims_common import suggest_memory_format

from dl4all.allocator.storage import Storage
from dl4all.errors import DeviceError
from dl4all.ops.core.dtypes import DTYPES
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides, from_host
from dl4all.ops.memory.copy import fresh_copy, overwrite
from dl4all.pytorch.device.devices import NAME, device_at, index_of_opened
from dl4all.pytorch.device.storage.templates import template
from dl4all.scheduler.device.device import Device
from dl4all.tensor.tensor import Tensor

CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
"""Redispatching with these runs ATen's own kernel; only for ops that change metadata and touch no memory."""

NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {getattr(torch, dtype.name): dtype for dtype in DTYPES}
"""The dtypes that dl4all computes with; tensors of others are bytes to it."""
TORCH_DTYPES = {own: dtype for dtype, own in NUMPY_DTYPES.items()}
CARRIERS: dict[int, np.dtype[Any]] = {
    1: np.dtype("uint8"),
    2: np.dtype("int16"),
    4: np.dtype("int32"),
    8: np.dtype("int64"),
}
"""The dtypes by whose names elements of other dtypes are moved, by their size in bytes."""

BYTE = np.dtype(np.uint8)

ON_CPU_ONLY = "sparse and quantized tensors stay on the CPU"


class NotNative(Exception):
    """dl4all cannot compute this call; the message says why."""


PAGE = 1 << 20
"""Bytes of a storage whose address takes no lock to choose."""

_pages = itertools.count(1 << 56, PAGE)
"""The address at which PyTorch believes the next storage of up to a page: beyond what processors can map."""


class _Ranges:
    """The same of longer ones, above all pages that a process can come to use."""

    next = 1 << 62
    lock = threading.Lock()


_construct_storage = torch._C._construct_storage_from_data_pointer
_new_empty = torch._C._acc.create_empty_tensor
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed
_as_strided = torch.ops.aten.as_strided.default._handle.redispatch_boxed
_torch_devices: dict[int, torch.device] = {}


def torch_device(index: int) -> torch.device:
    """``dlall:index``."""
    device = _torch_devices.get(index)
    if device is None:
        device = _torch_devices[index] = torch.device(NAME, index)
    return device


def torch_storage(memory: Any, index: int, nbytes: int) -> Any:
    """PyTorch's storage of `nbytes` bytes over dl4all's; None only for no bytes."""
    if 0 < nbytes <= PAGE:
        address = next(_pages)
    elif nbytes:
        with _Ranges.lock:
            address = _Ranges.next
            _Ranges.next = address + (nbytes // PAGE + 1) * PAGE
    else:
        address = 0
    storage: Any = _construct_storage(address, _torch_devices.get(index) or torch_device(index), nbytes)
    storage.memory = memory
    return storage


def new_storage(nbytes: int, index: int, tag: str = "torch") -> Any:
    """A PyTorch storage with new memory.

    Raises:
        OutOfMemoryError
    """
    return torch_storage(device_at(index).allocate(nbytes, tag), index, nbytes)


def over(
    storage: Any, index: int, dtype: torch.dtype, shape: Shape, strides: Shape, offset: int = 0
) -> torch.Tensor:
    """A PyTorch tensor over a storage."""
    empty = _as_strided(CPU_KEYS, template(index, dtype), (0,), (1,)) if index else _new_empty((0,), dtype)
    result: torch.Tensor = _set_storage(CPU_KEYS, empty, storage, offset, shape, strides)
    return result


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements of a storage that a tensor of this shape and these strides spans."""
    span = 1
    for size, stride in zip(shape, strides, strict=True):
        if not size:
            return 0
        span += (size - 1) * stride
    return span


def allocate(shape: Shape, dtype: torch.dtype, index: int, strides: Shape | None = None) -> torch.Tensor:
    """A PyTorch tensor with undefined elements.

    Raises:
        OutOfMemoryError
    """
    if strides is None:
        strides, elements = contiguous_strides(shape), math.prod(shape)
    else:
        elements = extent(shape, strides)
    nbytes = elements * dtype.itemsize
    return over(new_storage(nbytes, index), index, dtype, shape, strides)


def dtype_name(dtype: torch.dtype | None) -> str | None:
    """The name of dl4all's dtype for PyTorch's; None for None.

    Raises:
        NotNative: dl4all has no such elements.
    """
    if dtype is None:
        return None
    if dtype not in NUMPY_DTYPES:
        raise NotNative(f"there are no kernels for {dtype}")
    return NUMPY_DTYPES[dtype].name


def memory_of(storage: Any) -> Storage:
    """The dl4all storage under a PyTorch one."""
    try:
        memory = storage.memory
    except AttributeError:  # PyTorch made it, which it can do without bytes only
        memory = None
    if memory is None:
        if storage.nbytes():
            raise NotNative("a storage that PyTorch made on the device has no memory")
        memory = storage.memory = device_at(storage.device.index).allocate(0)
    result: Storage = memory
    return result


def tensor(value: torch.Tensor) -> Tensor:
    """dl4all's tensor over the same memory as a PyTorch tensor on ``dlall``.

    Raises:
        NotNative: the tensor is elsewhere, or dl4all has no such elements.
    """
    dtype = NUMPY_DTYPES.get(value.dtype)
    if dtype is None:
        raise NotNative(f"there are no kernels for {value.dtype}")
    if value.is_neg():
        raise NotNative("an operand is a view with its sign changed")
    return _view(value, dtype)


def carrier(value: torch.Tensor) -> Tensor:
    """As :func:`tensor`, of any dtype: elements that dl4all does not know look like integers of their size.

    Elements of 16 bytes are pairs of integers, along one more axis.

    Raises:
        NotNative: the tensor is elsewhere.
    """
    dtype: np.dtype[Any] | None = NUMPY_DTYPES.get(value.dtype)
    if dtype is not None:
        return _view(value, dtype)
    if value.dtype.itemsize in CARRIERS:
        return _view(value, CARRIERS[value.dtype.itemsize])
    return parts(value, CARRIERS[8])


def parts(value: torch.Tensor, dtype: np.dtype[Any]) -> Tensor:
    """A tensor of complex numbers as one of their parts in memory, with one more axis of size 2.

    Raises:
        NotNative: the tensor is elsewhere.
    """
    own = _view(value, dtype)
    strides = (*(2 * stride for stride in own.strides), 1)
    return Tensor(own.storage, (*own.shape, 2), dtype, own.device, strides, 2 * own.offset)


def _view(value: torch.Tensor, dtype: np.dtype[Any]) -> Tensor:
    try:
        memory = value.untyped_storage().memory  # type: ignore[attr-defined]
    except AttributeError:
        memory = None
    if memory is None:
        if value.device.type != NAME:
            raise NotNative(f"an operand is on {value.device}")
        memory = memory_of(value.untyped_storage())
    memory.named_cpu = True  # PyTorch's tensors of two devices are refused, whoever made them
    device = device_at(value.get_device())
    return Tensor(memory, tuple(value.shape), dtype, device, value.stride(), int(value.storage_offset()))


def wrap(result: TensorBase, shape: Shape | None = None, strides: Shape | None = None) -> torch.Tensor:
    """A PyTorch tensor that takes over a result of dl4all.

    Args:
        result: nothing else may use its memory.
        shape, strides: what PyTorch is to see, over the same elements; the result's own by default.
    """
    if result.offset or not result.is_contiguous():
        result = fresh_copy(result)
    index = index_of_opened(result.device)
    nbytes = result.numel() * result.dtype.itemsize
    storage = torch_storage(result.storage, index, nbytes)
    return over(storage, index, TORCH_DTYPES[result.dtype], shape or result.shape, strides or result.strides)


def is_channels_last(value: torch.Tensor) -> bool:
    """Whether PyTorch suggests for a tensor of images or volumes to have channels last in memory."""
    if value.is_contiguous():
        return False
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return bool(suggest_memory_format(value) == formats.get(value.dim()))


def wrap_channels_last(result: TensorBase) -> torch.Tensor:
    """A PyTorch tensor of a result of four or five axes, copied to have its channels last in memory."""
    order = (0, *range(2, len(result.shape)), 1)
    shape, strides = (tuple(one[axis] for axis in order) for one in (result.shape, result.strides))
    permuted = fresh_copy(result.strided_view(shape, strides, result.offset))
    by_axis = dict(zip(order, permuted.strides, strict=True))
    return wrap(permuted, result.shape, tuple(by_axis[axis] for axis in range(len(order))))


def wrap_parts(flat: TensorBase, *shapes: Shape) -> list[torch.Tensor]:
    """PyTorch tensors of these shapes that follow one another in a new result, all in its memory."""
    index, dtype = index_of_opened(flat.device), TORCH_DTYPES[flat.dtype]
    storage = torch_storage(flat.storage, index, flat.numel() * dtype.itemsize)
    tensors, start = [], 0
    for shape in shapes:
        tensors.append(over(storage, index, dtype, shape, contiguous_strides(shape), start))
        start += math.prod(shape)
    return tensors


def deliver(result: TensorBase, out: torch.Tensor) -> torch.Tensor:
    """Write a result of dl4all into the PyTorch tensor that a caller gave for it, which gets its shape.

    Args:
        result: nothing else may use its memory.
        out: on the same device.

    Raises:
        RuntimeError: its dtype cannot hold the result.
        DeviceError: it is on another device.
    """
    dtype = TORCH_DTYPES[result.dtype]
    if result.device is not device_of(out):
        raise DeviceError(f"[out=] expected a tensor on {result.device}, got {out.device}; move it first")
    if not torch.can_cast(dtype, out.dtype):
        raise RuntimeError(f"result type {dtype} can't be cast to the desired output type {out.dtype}")
    if tuple(out.shape) != result.shape:
        out.resize_(result.shape)
    storage = out.untyped_storage()
    whole = out.is_contiguous() and not out.storage_offset() and storage.nbytes() == out.nbytes
    if whole and dtype == out.dtype and result.is_contiguous() and not result.offset:
        storage.memory = result.storage  # type: ignore[attr-defined]
    else:
        overwrite(tensor(out), result)
    return out


def download(value: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU, with the same strides, of any dtype."""
    index, itemsize = value.get_device(), value.dtype.itemsize
    count = extent(value.shape, value.stride())
    if not count:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    memory = memory_of(value.untyped_storage())
    start = int(value.storage_offset()) * itemsize
    # Devices are read in whole words.
    first = start // 4 * 4
    span = Tensor(memory, (start + count * itemsize - first,), BYTE, device_at(index), (1,), first)
    array = span.on_host(each=False)
    array = array.copy() if span.device.is_host else array
    host = torch.from_numpy(array[start - first :])
    if start % 8:  # PyTorch views bytes as longer elements only where those may begin
        host = host.clone()
    host = host.view(value.dtype).as_strided(value.shape, value.stride())
    if value.is_conj():
        host = host.conj()
    return torch._neg_view(host) if value.is_neg() else host


def upload(host: torch.Tensor, index: int) -> torch.Tensor:
    """A copy on ``dlall:index`` of a tensor on the CPU, of any dtype, with its strides if they leave no gaps.

    Raises:
        NotNative: the tensor is sparse or quantized.
        OutOfMemoryError
    """
    if host.layout != torch.strided or host.is_quantized:
        raise NotNative(ON_CPU_ONLY)
    host = host.detach().resolve_conj().resolve_neg()
    if host._is_zerotensor():  # PyTorch's promise of zeros, without memory
        host = torch.zeros_like(host)
    if not is_dense(host.shape, host.stride()):
        host = host.contiguous()
    pinned = getattr(host.untyped_storage(), "pinned", None)
    if pinned is None:
        data = host.as_strided((host.numel(),), (1,)).view(torch.uint8).numpy()
    else:
        start = host.storage_offset() * host.dtype.itemsize
        data = pinned[start : start + host.nbytes]
    own = from_host(Tensor, data, device_at(index), copy=True)
    storage = torch_storage(own.storage, index, host.nbytes)
    return over(storage, index, host.dtype, tuple(host.shape), host.stride())


def write(target: torch.Tensor, host: torch.Tensor) -> None:
    """Copy a tensor on the CPU, broadcast and converted, into one on the device."""
    host = host.detach()
    if target.is_conj():
        host = host.conj()
    if target.is_neg():
        host = -host
    if host.dtype != target.dtype:
        host = host.to(target.dtype)
    overwrite(carrier(target), carrier(upload(host, target.get_device())))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie in some order of the axes without gaps or overlaps."""
    expected = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1
    ):
        if stride != expected and 0 not in shape:
            return False
        expected *= size
    return True


def device_of(value: torch.Tensor) -> Device:
    """The dl4all device of a PyTorch tensor."""
    return device_at(value.get_device())
