"""Device memory that the host sees, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.runtime.protocols import Bytes, Span


class HostView:
    """An allocation of a mapped buffer, kept alive by every array that shows it.

    Args:
        span: the allocation.
        owner: is kept alive too: whoever gives the memory back, or the backend whose memory it is.
        loan: is kept alive too, where the memory is lent: who lends it waits for that to be garbage.
    """

    def __init__(self, span: Span, owner: object = None, loan: object = None) -> None:
        memory = span.buffer.mapped[span.offset : span.offset + span.nbytes]
        self.__array_interface__ = dict(memory.__array_interface__)
        self.span = span
        self._owner = owner
        self._loan = loan

    def bytes(self) -> Bytes:
        """The memory itself."""
        return np.asarray(self)


def pinned_span(array: npt.NDArray[Any], backend: object) -> Span | None:
    """The span of a contiguous array in pinned memory of a backend, None if it is not there."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, HostView) or base._loan is None or base._owner is not backend:
        return None
    if not array.flags.c_contiguous:
        return None
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return Span(base.span.buffer, base.span.offset + start, array.nbytes)
