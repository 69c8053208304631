"""A ``kp.Tensor`` of type `device`: device memory and a staging buffer of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dl4all.errors import OutOfMemoryError
from dl4all.runtime.backend import Bytes
from dl4all.runtime.kompute.library import errors, kp

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend

# Kompute flushes each mapping whole, which the specification allows only in multiples of
# nonCoherentAtomSize, at most 256 bytes.
ALIGNMENT = 256


class KomputeBuffer:
    """``staging`` is the mapped staging buffer as bytes; the syncs copy between the two."""

    __slots__ = ("_backend", "nbytes", "recordings", "staging", "tensor", "to_device", "to_host")

    def __init__(self, backend: KomputeBackend, nbytes: int) -> None:
        self._backend = backend
        self.nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        # Kompute ignores a failed vkAllocateMemory and then uses the null handle, so what cannot
        # fit is refused before it asks.
        limits = backend.info.limits
        if self.nbytes > min(limits.allocation_size, 2**32 - 1) or (
            backend.allocated + self.nbytes > backend.info.memory
        ):
            raise OutOfMemoryError(
                f"[kompute] {nbytes} bytes do not fit on {backend.info.hardware}: "
                f"{backend.allocated} of {backend.info.memory} bytes are taken and one buffer may have "
                f"{limits.allocation_size}; free tensors or use a smaller batch"
            )
        # Kompute initialises the staging memory from this array; np.empty does not touch its pages.
        initial = np.empty(self.nbytes // 4, np.uint32)
        with errors(f"allocating {self.nbytes} bytes"):
            self.tensor: Any = backend.manager.tensor_t(initial, kp().TensorTypes.device)
            self.to_device: Any = backend.record(kp().OpTensorSyncDevice([self.tensor]))
            self.to_host: Any = backend.record(kp().OpTensorSyncLocal([self.tensor]))
        self.staging: Bytes = self.tensor.data().view(np.uint8)
        self.recordings: set[Any] = set()
        backend.allocated += self.nbytes
        backend.buffers.add(self)

    def free(self) -> None:
        if self.tensor is None:
            return
        self._backend.stream.forget(self)
        self.to_device.destroy()
        self.to_host.destroy()
        self.staging = np.empty(0, np.uint8)
        self.tensor.destroy()
        self.tensor = self.to_device = self.to_host = None
        self._backend.allocated -= self.nbytes
        self._backend.buffers.discard(self)
