"""Tensors from arrays that are computed on the host."""

from __future__ import annotations

from dl4all.ops.core.tensor_base import Array, from_host
from dl4all.ops.indexing.indices import NDArray


def to_device_of(like: Array, array: NDArray) -> Array:
    """The array as a tensor on the device of `like`; on the CPU it keeps the array's memory."""
    return from_host(type(like).result_class, array, like.device, copy=False)
