"""Which commands can run side by side: how many others must come before each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dl4all.runtime.protocols import Span

Interval = tuple[int, int]


def levels(accesses: Iterable[tuple[Iterable[Span], Iterable[Span]]]) -> list[int]:
    """For each command, given as what it reads and writes, the longest chain of commands that it waits for.

    Commands of a level do not depend on each other, and each of level n depends on one of level n - 1. In the
    order of their levels they need a barrier between two levels, and no order can do with fewer.

    >>> a, b = Span("a", 0, 8), Span("b", 0, 8)
    >>> levels([([], [a]), ([a], [b]), ([], [Span("c", 0, 8)]), ([b], [a])])
    [0, 1, 0, 2]
    """
    known: dict[Any, _Uses] = {}
    found = []
    for reads, writes in accesses:
        taken = [(known.setdefault(span.buffer, _Uses({}, {})), span, False) for span in reads]
        taken += [(known.setdefault(span.buffer, _Uses({}, {})), span, True) for span in writes]
        level = max((uses.level(span, writes=writing) for uses, span, writing in taken), default=0)
        for uses, span, writing in taken:
            uses.add(span, level, writes=writing)
        found.append(level)
    return found


class _Uses(NamedTuple):
    """The last level that read and that wrote pieces of a buffer."""

    read: dict[Interval, int]
    written: dict[Interval, int]

    def level(self, span: Span, *, writes: bool) -> int:
        """The first level in which a command may use a span."""
        begin, end = span.offset, span.offset + span.nbytes
        earlier = [self.written, self.read] if writes else [self.written]
        return max(
            (
                level + 1
                for pieces in earlier
                for (first, last), level in pieces.items()
                if begin < last and first < end
            ),
            default=0,
        )

    def add(self, span: Span, level: int, *, writes: bool) -> None:
        piece = begin, end = span.offset, span.offset + span.nbytes
        if not writes:
            self.read[piece] = max(level, self.read.get(piece, 0))
            return
        for pieces in self:  # who waits for this one waits for those as well
            for first, last in [inner for inner in pieces if begin <= inner[0] and inner[1] <= end]:
                if pieces[first, last] < level:
                    del pieces[first, last]
        self.written[piece] = level
