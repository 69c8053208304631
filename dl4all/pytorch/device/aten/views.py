"""Ops that make views: they change metadata only, so ATen's own CPU kernels serve, which touch no memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dl4all.ops.core.tensor_base import contiguous_strides
from dl4all.pytorch.device.dispatch.registration import overload, register
from dl4all.pytorch.device.storage import memory
from dl4all.pytorch.device.storage.memory import CPU_KEYS

METADATA_ONLY = ("view", "as_strided", "_reshape_alias", "unfold", "view_as_real", "view_as_complex")

_set_storage = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed


def _by_aten(name: str) -> Callable[..., Any]:
    redispatch = overload(name)._handle.redispatch_boxed

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return redispatch(CPU_KEYS, *args, **kwargs)

    return kernel


for _name in METADATA_ONLY:
    register(_name, _by_aten(_name))


def set_storage_offset(
    target: torch.Tensor, source: Any, offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> Any:
    shape = tuple(map(int, size))
    strides = tuple(map(int, stride)) or contiguous_strides(shape)
    return _set_storage(CPU_KEYS, target, source, offset, shape, strides)


def set_storage(target: torch.Tensor, source: Any) -> Any:
    return _set_storage(CPU_KEYS, target, source, 0, (source.nbytes() // target.dtype.itemsize,), (1,))


def set_tensor(target: torch.Tensor, source: torch.Tensor) -> Any:
    storage = source.untyped_storage()
    return _set_storage(CPU_KEYS, target, storage, source.storage_offset(), source.shape, source.stride())


def set_nothing(target: torch.Tensor) -> Any:
    return _set_storage(CPU_KEYS, target, memory.new_storage(0, target.get_device()), 0, (0,), (1,))


register("set_.source_Storage_storage_offset", set_storage_offset)
register("set_.source_Storage", set_storage)
register("set_.source_Tensor", set_tensor)
register("set_", set_nothing)
