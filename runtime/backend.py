"""What a backend offers: memory, programs and one in-order stream, on one opened device.

These are protocols, not base classes: a backend is any object with these methods. The contract,
for all of them:

* A stream runs its commands as if one after the other, in the order they were recorded. The
  backend finds out from each program's interface which buffers a dispatch reads and writes and
  puts barriers (or waits) where a command depends on an earlier one, nowhere else.
* ``dispatch`` and ``upload`` return as soon as the backend allows; ``download`` and
  ``synchronize`` return when the data is there.
* A buffer's contents are undefined until something writes it. A buffer must not be freed while a
  command that uses it may still run: call ``synchronize`` first.
* Failures are the typed errors of :mod:`dl4all.errors`, never a backend library's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dl4all.errors import ShaderError
from dl4all.runtime.info import DeviceInfo, Limits
from dl4all.runtime.spirv import Module

Bytes = npt.NDArray[np.uint8]
Grid = tuple[int, int, int]
Clock = Literal["device", "host"]
Ran = Callable[[float, float, Clock], None]
"""Told when a dispatch ran: start and end in seconds of ``time.perf_counter``, and who measured them."""

# SPIR-V capabilities that every device of Vulkan 1.1 has, and what others are called in ``features``.
CORE = ("Shader", "Matrix", "GroupNonUniform")
FEATURES = {"Int64": "int64", "GroupNonUniformShuffle": "subgroup_shuffle"}
MAX_BINDINGS = 8  # buffers of one dispatch; a device may allow fewer, but at least 4


def check_interface(
    module: Module, constants: Sequence[int], limits: Limits, features: frozenset[str]
) -> None:
    """Refuse what a Vulkan device would silently get wrong.

    Raises:
        ShaderError: the bindings are not 0, 1, 2, ..., the device's limits are exceeded, or the
            shader needs a feature that was not enabled.
    """
    interface = module.interface
    for capability in interface.capabilities:
        if capability not in CORE and FEATURES.get(capability) not in features:
            raise ShaderError(f"[{module.name}] needs {capability}, which is not enabled on the device")
    indices = [binding.index for binding in interface.bindings]
    if indices != list(range(len(indices))):
        raise ShaderError(f"[{module.name}] bindings must be 0, 1, 2, ... without gaps, got {indices}")
    allowed = min(MAX_BINDINGS, limits.storage_buffers)
    if len(indices) > allowed:
        raise ShaderError(f"[{module.name}] binds {len(indices)} buffers, the device allows {allowed}")
    if interface.push_bytes > limits.push_constants:
        raise ShaderError(
            f"[{module.name}] takes {interface.push_bytes} bytes of push constants, "
            f"the device allows {limits.push_constants}"
        )
    if interface.shared_bytes > limits.shared_memory:
        raise ShaderError(
            f"[{module.name}] shares {interface.shared_bytes} bytes within a workgroup, "
            f"the device allows {limits.shared_memory}"
        )
    size = tuple(
        default if id is None or id >= len(constants) else constants[id]
        for default, id in zip(interface.local_size, interface.local_size_ids, strict=True)
    )
    too_long = any(side > most for side, most in zip(size, limits.workgroup_size, strict=True))
    if too_long or math.prod(size) > limits.workgroup_invocations:
        raise ShaderError(
            f"[{module.name}] has workgroups of {size}, the device allows {limits.workgroup_size} "
            f"and {limits.workgroup_invocations} invocations in all"
        )


class Buffer(Protocol):
    """A piece of device memory."""

    @property
    def nbytes(self) -> int: ...

    def free(self) -> None:
        """Give the memory back to the driver. No command that uses it may still be running."""


class Program(Protocol):
    """A compiled compute shader with its specialization constants fixed."""

    @property
    def module(self) -> Module: ...


class Stream(Protocol):
    """An in-order queue of commands on one device."""

    def dispatch(
        self, program: Any, buffers: Sequence[Any], groups: Grid, push: bytes, ran: Ran | None = None
    ) -> None:
        """Run `groups` workgroups; `buffers` are bound in order, `push` fills the push constants.

        With `ran` the dispatch runs alone, is timed, and `ran` is called by the time ``synchronize``
        returns. A backend that cannot time does not call it.
        """

    def upload(self, buffer: Any, data: Bytes) -> None:
        """Copy `data` (1-d, contiguous, at most ``buffer.nbytes``) to the start of the buffer.

        What the buffer held behind that is undefined afterwards. `data` may be changed at once.
        """

    def download(self, buffer: Any, out: Bytes) -> None:
        """Copy the start of the buffer into `out` (1-d, contiguous, writable)."""

    def synchronize(self) -> None:
        """Wait until every command recorded so far has finished."""


class Backend(Protocol):
    """One device, opened."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def features(self) -> frozenset[str]:
        """Optional features that shaders may use here: ``int64``, ``subgroup_shuffle``."""

    @property
    def stream(self) -> Stream: ...

    def allocate(self, nbytes: int) -> Buffer:
        """Reserve at least `nbytes` (> 0) of device memory.

        Raises:
            OutOfMemoryError: the device has none left.
        """

    def program(self, module: Module, constants: Sequence[int]) -> Program:
        """Build a pipeline. `constants` are uint32 bit patterns for spec ids 0, 1, 2, ...

        Raises:
            ShaderError: the device cannot run it.
        """

    def close(self) -> None:
        """Wait for the device and release everything that was created on it.

        Where there was something to release, using the device afterwards raises DeviceError. A
        second ``close`` does nothing.
        """
