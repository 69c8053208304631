"""The place of sorting and compaction: kernels on the device, or the host where that is the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dl4all.errors import DTypeError
from dl4all.ops.core.dtypes import FLOAT8, STORED_ADVICE
from dl4all.ops.core.limits import host_memory
from dl4all.ops.core.op import KERNEL_REFUSALS
from dl4all.ops.core.tensor_base import TensorBase, check_repeated
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device

R = TypeVar("R")

HOST_ELEMENTS = 1024
"""A software driver sorts fewer elements in about the time of a wait for it, and more of them 4 to
20 times slower than NumPy: it has the same processor, and pays for each shared variable and barrier."""


def prefers_host(device: Device, elements: int, *, waits: bool) -> bool:
    """Whether the host computes faster than a device, and may; it `waits` for what some kernels find."""
    software = device.info.type == "software"
    return software and (waits or elements >= HOST_ELEMENTS) and not fallback.is_forbidden()


def by_kernels_or_host(
    name: str,
    input: TensorBase,
    kernels: Callable[[], R],
    host: Callable[[], R],
    *,
    waits: bool = False,
) -> R:
    """The result of `kernels`, or of `host` on the CPU and where kernels cannot run or are slower.

    What the host computes for a device counts as a fallback.

    Args:
        name: of the function, for errors and reports.
        input: what is sorted, on the device that is to compute.
        kernels: computes on the device.
        host: computes the same on the host.
        waits: whether the host waits for what the kernels find, as for the number of elements.

    Raises:
        DTypeError: the elements are floats of 8 bits.
        OutOfMemoryError: the host's memory does not suffice, or a view repeats elements too often.
        FallbackError: the kernels cannot run, and the policy forbids the host.
    """
    if input.dtype in FLOAT8:
        raise DTypeError(f"[{name}] the elements are {input.dtype}; {STORED_ADVICE}")
    check_repeated(name, input)
    device, dtype = input.device, input.dtype.name
    if device.is_host:
        with host_memory(name):
            return host()
    if prefers_host(device, input.numel(), waits=waits):
        cause = fallback.faster_on_host(device, dtype)
    else:
        try:
            return kernels()
        except KERNEL_REFUSALS as error:
            cause = fallback.refused(device, error, dtype)
    with host_memory(name), fallback.on_host(name, device, cause):
        return host()
