"""Allocation, copies, fills, and elements on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dl4all import ops
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides
from dl4all.ops.memory.copy import fill_with, overwrite
from dl4all.pytorch.device.devices import index_of
from dl4all.pytorch.device.dispatch.registration import LIBRARY, native
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.memory import CPU_KEYS, NotNative, carrier, tensor
from dl4all.tensor.creation import from_numpy

_to_copy = torch.ops.aten._to_copy.default._handle.redispatch_boxed
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed


def _strides(shape: Shape, memory_format: torch.memory_format | None) -> Shape:
    """The strides of a new tensor in a memory format."""
    if memory_format == torch.channels_last and len(shape) == 4:
        _, c, h, w = shape
        return (h * w * c, 1, w * c, c)
    if memory_format == torch.channels_last_3d and len(shape) == 5:
        _, c, d, h, w = shape
        return (d * h * w * c, 1, h * w * c, w * c, c)
    return contiguous_strides(shape)


@native("empty.memory_format")
def empty(
    size: Sequence[int],
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    shape = tuple(size)
    strides = None if memory_format is None else _strides(shape, memory_format)
    return memory.allocate(shape, dtype or torch.get_default_dtype(), index_of(device), strides)


@native("empty_strided")
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    shape, strides = tuple(map(int, size)), tuple(map(int, stride))
    return memory.allocate(shape, dtype or torch.get_default_dtype(), index_of(device), strides)


@native("_copy_from", plans=True)
def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy between devices, dtypes and strides; one of the two is on the device."""
    if source.device.type == "cpu":
        memory.write(target, source)
    elif target.device.type == "cpu":
        target.detach().copy_(memory.download(source))
    elif source.dtype == target.dtype:
        _copy_elements(target, source)
    elif {source.dtype, target.dtype} <= memory.NUMPY_DTYPES.keys() and source.is_neg() == target.is_neg():
        overwrite(carrier(target), carrier(source))
    else:
        memory.write(target, memory.download(source))
    return target


def _copy_elements(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy between tensors of one dtype, of which one may be a view of conjugates or with another sign."""
    conjugated, negated = source.is_conj() != target.is_conj(), source.is_neg() != target.is_neg()
    if not conjugated and not negated:
        overwrite(carrier(target), carrier(source))
        return
    if source.dtype.is_complex:
        real = memory.NUMPY_DTYPES[source.dtype.to_real()]
        to, numbers = memory.parts(target, real), memory.parts(source, real)
        factors = [-1 if negated else 1, -1 if negated != conjugated else 1]
        changed = ops.mul(numbers, from_numpy(np.array(factors, real), numbers.device))
    else:
        to, numbers = carrier(target), carrier(source)
        changed = ops.neg(numbers)
    overwrite(to, changed)


# copy_ runs below these keys with their bits still set; without the two lines resolving a conjugate view
# calls clone, copy_, _copy_from and resolves again, until the stack overflows.
LIBRARY.impl("_copy_from", torch.library.fallthrough_kernel, "Conjugate")
LIBRARY.impl("_copy_from", torch.library.fallthrough_kernel, "Negative")


@native("_to_copy")
def to_copy(value: torch.Tensor, *, non_blocking: bool = False, **options: Any) -> torch.Tensor:
    """ATen's own kernel, which would allocate pinned memory for a copy to the CPU that does not block."""
    result: torch.Tensor = _to_copy(CPU_KEYS, value, non_blocking=False, **options)
    return result


@native("_copy_from_and_resize")
def copy_from_and_resize(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.shape != source.shape:
        target.resize_(source.shape)
    result: torch.Tensor = copy_from(source, target)
    return result


@native("_local_scalar_dense")
def local_scalar_dense(value: torch.Tensor) -> Any:
    """The only element as a Python number; waits for the device."""
    return memory.download(value).item()


@native("fill_.Scalar")
def fill(target: torch.Tensor, value: Any) -> torch.Tensor:
    if target.dtype in memory.NUMPY_DTYPES and not target.is_neg():
        _fill(tensor(target), value)
    else:
        memory.write(target, torch.tensor(value, dtype=target.dtype))
    return target


@native("fill_.Tensor")
def fill_tensor(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if value.dim():
        raise NotNative("only a tensor without axes fills another one")
    target.copy_(value)
    return target


@native("zero_")
def zero(target: torch.Tensor) -> torch.Tensor:
    _fill(carrier(target), 0)
    return target


def _fill(target: TensorBase, value: Any) -> None:
    fill_with(target, value)
    target.storage.version += 1


@native("complex.out")
def complex_from_parts(real: torch.Tensor, imag: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(real.shape, imag.shape)
    if real.dtype != imag.dtype or out.dtype != real.dtype.to_complex():
        raise NotNative(f"parts of {real.dtype} and {imag.dtype} for {out.dtype}")
    if out.shape != shape:
        out.resize_(shape)
    both = memory.parts(out, memory.NUMPY_DTYPES[real.dtype])
    for place, part in enumerate((real, imag)):
        overwrite(both.strided_view(shape, both.strides[:-1], both.offset + place), tensor(part))
    return out


@native("polar.out")
def polar(abs: torch.Tensor, angle: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = complex_from_parts(abs * angle.cos(), abs * angle.sin(), out=out)
    return result


@native("is_pinned")
def is_pinned(value: torch.Tensor, device: torch.device | None = None) -> bool:
    return False


@native("record_stream")
def record_stream(value: torch.Tensor, stream: Any) -> None:
    """Nothing: dl4all's allocator knows by itself which streams use memory."""


@native("resize_")
def resize(
    target: torch.Tensor, size: Sequence[int], memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """Another shape over the same storage; a longer one gets a new storage with the old elements in front.

    PyTorch's own storage cannot grow from Python, so views of the old one do not see the new elements.
    """
    shape = tuple(map(int, size))
    if shape == tuple(target.shape) and memory_format is None:
        return target  # with the strides that it has
    strides = _strides(shape, memory_format)
    offset, itemsize = target.storage_offset(), target.dtype.itemsize
    needed = (offset + memory.extent(shape, strides)) * itemsize if 0 not in shape else 0
    storage = target.untyped_storage()
    if needed > storage.nbytes():
        index, old = int(target.get_device()), storage
        storage = memory.new_storage(int(needed), index)
        kept = old.nbytes() // itemsize
        if kept:
            source, copy = (memory.over(one, index, target.dtype, (kept,), (1,)) for one in (old, storage))
            overwrite(carrier(copy), carrier(source))
    result: torch.Tensor = _set_storage(CPU_KEYS, target, storage, offset, shape, strides)
    return result
