"""Which commands depend on each other: spans read and written since the last barrier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dl4all.runtime.protocols import Command, Copy, Dispatch, Span

MANY = 64  # spans of one buffer; looking through more costs more than the barrier that empties the list


def accesses(command: Command) -> tuple[list[Span], list[Span]]:
    """The reads and writes of a command."""
    if isinstance(command, Dispatch):
        reads, writes = list[Span](), list[Span]()
        for span, writing in zip(command.spans, command.program.writes, strict=True):
            (writes if writing else reads).append(span)
        return reads, writes
    if isinstance(command, Copy):
        return [command.source], [command.target]
    return [], [command.target]


class Hazards:
    """The accesses that a command would have to wait for.

    >>> hazards = Hazards()
    >>> buffer = object()
    >>> low, high = Span(buffer, 0, 256), Span(buffer, 256, 256)
    >>> hazards.add(reads=[], writes=[low])
    >>> hazards.found(reads=[high], writes=[]), hazards.found(reads=[low], writes=[])
    (False, True)
    """

    __slots__ = ("_read", "_written")

    def __init__(self) -> None:
        self._read: dict[Any, list[tuple[int, int]]] = {}
        self._written: dict[Any, list[tuple[int, int]]] = {}

    def found(self, reads: Iterable[Span], writes: Iterable[Span]) -> bool:
        """Whether one of the spans was written since the last barrier, or one to write was read."""
        read, written = self._read, self._written
        for span in reads:
            if span.buffer in written and _overlap(written[span.buffer], span):
                return True
        for span in writes:
            buffer = span.buffer
            if buffer in written and _overlap(written[buffer], span):
                return True
            if buffer in read and _overlap(read[buffer], span):
                return True
        return False

    def add(self, reads: Iterable[Span], writes: Iterable[Span]) -> None:
        """Note what a command does."""
        for known, spans in ((self._read, reads), (self._written, writes)):
            for buffer, offset, nbytes in spans:
                piece = (offset, offset + nbytes)
                pieces = known.get(buffer)
                if pieces is None:
                    known[buffer] = [piece]
                elif len(pieces) < MANY and pieces[-1] != piece:
                    pieces.append(piece)

    def clear(self) -> None:
        """A barrier: everything before it is settled."""
        self._read.clear()
        self._written.clear()

    def forget(self, buffer: Any) -> None:
        """A buffer is about to be freed."""
        self._read.pop(buffer, None)
        self._written.pop(buffer, None)


def _overlap(pieces: list[tuple[int, int]], span: Span) -> bool:
    if len(pieces) >= MANY:
        return True
    begin, end = span.offset, span.offset + span.nbytes
    return any(begin < last and first < end for first, last in pieces)
