"""The interface of a strategy of handing out memory, and the allocations that it hands out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from dl4all.runtime.protocols import Buffer, Span


class Allocation:
    """Memory on loan. A strategy makes it and gets it back; who borrows it writes the notes."""

    __slots__ = (
        "address",
        "nbytes",
        "origin",
        "place",
        "size",
        "span",
        "strategy",
        "stream_pool",
        "tag",
        "users",
    )

    def __init__(self, span: Span, size: int, strategy: Owner, place: int = 0) -> None:
        self.span = span  # what a dispatch binds
        self.address = 0  # of memory of the host
        self.size = size  # bytes that are taken for it
        self.strategy = strategy
        self.place = place  # where it lies, for the strategy
        self.nbytes = 0  # of them that were asked for
        self.tag = ""  # what for: an op's name, or "upload"
        self.origin = ""  # the line that asked, when that is tracked
        self.stream_pool: Any = None  # the stream's memory that it belongs to
        self.users: set[Any] | None = None  # other streams whose commands use it


class Owner(Protocol):
    """The owner to which an allocation goes back."""

    def free(self, allocation: Allocation) -> None:
        """Take an allocation back."""


class Strategy(Owner, Protocol):
    """One way to hand out a device's memory. It is called by one thread at a time.

    What is freed may be handed out again at once: whoever calls sees to it that the commands of the next
    owner run after those of the last one.
    """

    def allocate(self, nbytes: int) -> Allocation | None:
        """An allocation of at least `nbytes` (> 0) of the memory that is there, None without room."""

    def grow(self, nbytes: int) -> Allocation:
        """The same with more memory from the driver.

        Raises:
            OutOfMemoryError
        """

    def idle(self, least: int = 0) -> Iterator[Buffer]:
        """Let go of buffers of at least `least` bytes of which no byte is on loan, one after the other."""

    def adopt(self, buffer: Buffer) -> None:
        """Take over a buffer that another strategy of the same kind let go of."""

    def largest(self) -> int:
        """Bytes of the largest allocation that could be had without the driver."""

    def rebuild(self, held: Collection[Allocation]) -> None:
        """Work out anew what is free, after an exception at any line: all but what is held."""

    def blocks(self, held: Iterable[Allocation]) -> Iterator[Buffer]:
        """Every buffer that is this strategy's, with what is held."""


@dataclass
class Stats:
    """A device's memory. Sizes are bytes since the device was opened, peaks since they were last reset."""

    allocated: int = 0  # asked for by what is alive
    reserved: int = 0  # taken from the driver, in use or not
    peak: int = 0  # the most that was ever allocated
    peak_reserved: int = 0
    hits: int = 0  # requests served from memory that was there
    misses: int = 0  # requests for which the driver was asked

    @property
    def fragmentation(self) -> float:
        """The part of the memory reserved at its peak that the largest load could not use, 0 to 1."""
        return 1 - self.peak / self.peak_reserved if self.peak_reserved else 0.0


def extent(size: int, nbytes: int, limit: int) -> int:
    """Size of the bound range: the whole allocation, or what the device can bind, but all of `nbytes`.

    >>> extent(1024, 1000, 1000), extent(1024, 1001, 1000), extent(1024, 1000, 4096)
    (1000, 1004, 1024)
    """
    return min(size, max(limit // 4 * 4, aligned(nbytes, 4)))


def aligned(nbytes: int, alignment: int) -> int:
    """`nbytes` rounded up to a multiple of `alignment`, a power of two.

    >>> aligned(1, 64), aligned(128, 64)
    (64, 128)
    """
    return (nbytes + alignment - 1) & -alignment
