"""Finding shaders that write past the end of an operand: ``DL4ALL_MEMORY_DEBUG=1``.

Every allocation then has a guard behind it, which dispatches bind along with it, since a driver may drop what
is written past the end of what is bound. The guard is filled with a pattern and looked at after each
dispatch.
"""

from __future__ import annotations

import numpy as np

from dl4all.allocator.allocation import aligned
from dl4all.allocator.storage import Storage
from dl4all.errors import ShaderError
from dl4all.runtime.protocols import Fill, Span, Stream

GUARD = 256  # bytes, at least
PATTERN = 0xCA9A12D5


def guard_of(storage: Storage) -> Span:
    """The guard behind the bytes that were asked for, from the next whole word on."""
    buffer, offset, nbytes = storage.span
    used = min(aligned(storage.nbytes, 4), nbytes)
    return Span(buffer, offset + used, nbytes - used)


def set_guard(stream: Stream, storage: Storage) -> None:
    """Fill the guard with the pattern."""
    guard = guard_of(storage)
    if guard.nbytes:
        stream.fill(Fill(guard, PATTERN))


def check_guard(stream: Stream, storage: Storage, name: str) -> None:
    """Wait for what runs, and compare the guard with the pattern.

    Raises:
        ShaderError: `name` changed it.
    """
    guard = guard_of(storage)
    if not guard.nbytes:
        return
    found = np.empty(guard.nbytes // 4, np.uint32)
    stream.download(guard, found.view(np.uint8))
    changed = np.flatnonzero(found != PATTERN)
    if changed.size:
        set_guard(stream, storage)
        raise ShaderError(
            f"[{name}] wrote {4 * changed[0]} bytes behind the end of an operand of {storage.nbytes} bytes"
            f"{_made_for(storage)}: {changed.size} words of {found.size} that were looked at are changed"
        )


def _made_for(storage: Storage) -> str:
    return (
        f" made for {storage.allocation.tag}"
        if storage.allocation is not None and storage.allocation.tag
        else ""
    )
