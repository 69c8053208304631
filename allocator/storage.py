"""A buffer on loan, given back when the last owner is gone."""

from __future__ import annotations

from typing import Any

from dl4all.allocator.pool import Pool
from dl4all.runtime.backend import Span


class Storage:
    """`nbytes` bytes of device memory. Tensors that view the same memory share one storage.

    Without a pool the buffer is not returned to anyone: it belongs to whoever made it.
    """

    __slots__ = ("_pool", "buffer", "nbytes", "span")

    def __init__(self, buffer: Any, nbytes: int, pool: Pool | None) -> None:
        self.buffer = buffer
        self.nbytes = nbytes
        self.span = Span(buffer, 0, buffer.nbytes)
        self._pool = pool

    def __del__(self) -> None:
        if self._pool is not None:
            self._pool.release(self.buffer)
