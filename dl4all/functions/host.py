"""Tensors from arrays that are computed on the host, by functions that no device has a kernel for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from dl4all.ops.core.dtypes import BFLOAT16
from dl4all.ops.core.limits import host_memory
from dl4all.ops.core.tensor_base import Array, TensorBase, check_repeated, from_host
from dl4all.ops.indexing.indices import NDArray
from dl4all.scheduler import fallback

P = ParamSpec("P")
R = TypeVar("R")


def to_device_of(like: Array, array: NDArray) -> Array:
    """The array as a tensor on the device of `like`; on the CPU it keeps the array's memory."""
    return from_host(type(like).result_class, array, like.device, copy=False)


def numbers(tensor: TensorBase) -> NDArray:
    """The elements on the host, as NumPy can sort and compare them: float32 in place of bfloat16."""
    array = tensor.on_host()
    return array.astype(np.float32) if array.dtype == BFLOAT16 else array


def computed_on_host(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Count the calls of a function as fallbacks, where its first tensor lives on a device.

    The function raises an OutOfMemoryError where the host's memory does not suffice.

    >>> @computed_on_host("largest")
    ... def largest(input):
    ...     return float(input.on_host().max())
    >>> import dl4all as dl
    >>> largest(dl.tensor([1.0, 3.0], device="cpu"))
    3.0
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            operands = [o for o in itertools.chain(args, kwargs.values()) if isinstance(o, TensorBase)]
            check_repeated(name, *operands)
            with host_memory(name):
                if not operands or operands[0].device.is_host:
                    return function(*args, **kwargs)
                device, dtype = operands[0].device, operands[0].dtype.name
                with fallback.on_host(name, device, fallback.no_kernel(device, dtype)):
                    return function(*args, **kwargs)

        return counted

    return declare
