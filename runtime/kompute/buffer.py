"""A ``kp.Tensor``: of type `device`, which is device memory and a staging buffer of the same size, or `host`.

Kompute copies between the two whole. An upload to a part of a device buffer therefore fetches what the device
holds first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dl4all.errors import ArgumentError, OutOfMemoryError
from dl4all.runtime.kompute.library import evaluate, kp, typed
from dl4all.runtime.protocols import Bytes, MemoryKind

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend

# Kompute flushes each mapping whole, which the specification allows only in multiples of
# nonCoherentAtomSize, at most 256 bytes.
ALIGNMENT = 256
NO_BYTES: Bytes = np.empty(0, np.uint8)


def check_room(backend: KomputeBackend, nbytes: int, allocations: int) -> None:
    """Refuse what cannot fit: Kompute ignores a failed vkAllocateMemory and then uses the null handle.

    Raises:
        OutOfMemoryError
    """
    limits, hardware = backend.info.limits, backend.info.hardware
    if nbytes > min(limits.allocation_size, 2**32 - 1) or backend.allocated + nbytes > backend.info.memory:
        raise OutOfMemoryError(
            f"[kompute] {nbytes} bytes do not fit on {hardware}: "
            f"{backend.allocated} of {backend.info.memory} bytes are taken and one buffer may have "
            f"{limits.allocation_size}; free tensors or use a smaller batch"
        )
    if backend.allocations + allocations > limits.allocations:
        raise OutOfMemoryError(
            f"[kompute] {hardware} allows {limits.allocations} allocations at a time, and "
            f"{backend.allocations} are in use; free tensors, or use fewer and larger ones"
        )


class KomputeBuffer:
    """``users`` are the launches and recordings that are bound to it, and end with it."""

    __slots__ = (
        "_backend", "_staging", "_to_device", "_to_host", "allocations", "mapped", "nbytes", "tensor",
        "users",
    )  # fmt: skip

    def __init__(self, backend: KomputeBackend, nbytes: int, kind: MemoryKind) -> None:
        if kind not in get_args(MemoryKind):
            raise ArgumentError(
                f"[kompute] no memory of kind {kind!r}; use {' or '.join(get_args(MemoryKind))}"
            )
        if nbytes <= 0:
            raise ArgumentError(f"[kompute] no buffer has {nbytes} bytes; the smallest has 1")
        self._backend = backend
        self.nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.allocations = 2 if kind == "device" else 1
        check_room(backend, self.nbytes, self.allocations)
        # Kompute initialises what is mapped from this array; np.empty does not touch its pages.
        initial = np.empty(self.nbytes // 4, np.uint32)
        library = kp()
        self._to_device: Any = None
        self._to_host: Any = None
        try:
            self.tensor: Any = backend.manager.tensor_t(initial, getattr(library.TensorTypes, kind))
            if kind == "device":
                self._to_device = backend.sequence([library.OpTensorSyncDevice([self.tensor])])
                self._to_host = backend.sequence([library.OpTensorSyncLocal([self.tensor])])
        except RuntimeError as error:
            raise typed(error, f"allocating {self.nbytes} bytes") from None
        self._staging: Bytes = self.tensor.data().view(np.uint8)
        self.mapped: Bytes | None = self._staging if kind == "host" else None
        self.users: set[Any] = set()
        backend.buffers.add(self)  # last, and what is taken follows from it: an exception leaves it whole

    def read(self, offset: int, nbytes: int) -> Bytes:
        """The bytes of a span, good until the buffer is used again."""
        if self._to_host is not None:
            evaluate(self._to_host, "downloading")
        return self._staging[offset : offset + nbytes]

    def write(self, offset: int, data: Bytes, *, whole: bool = False) -> None:
        """Set the bytes of a span; if it is the `whole` buffer, what lies behind `data` is lost."""
        whole = whole or data.size == self.nbytes
        if self._to_host is not None and not whole:
            evaluate(self._to_host, "downloading what lies around an upload")
        self._staging[offset : offset + data.size] = data
        if self._to_device is not None:
            evaluate(self._to_device, "uploading")

    def free(self) -> None:
        with self._backend.lock:
            if self not in self._backend.buffers:
                return
            # Each step may be done again, if an exception cuts this short.
            for user in tuple(self.users):
                user.free()
            for sequence in (self._to_device, self._to_host):
                if sequence is not None:
                    sequence.destroy()
            self._staging = NO_BYTES
            self.mapped = None if self.mapped is None else NO_BYTES
            if self.tensor is not None:
                self.tensor.destroy()
            self.tensor = self._to_device = self._to_host = None
            self._backend.buffers.discard(self)
