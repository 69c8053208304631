"""Plans the memory of tensors whose lifetimes are known ahead of time: offset assignment in one arena.

The graph compiler calls it: a graph knows the size of each tensor, and the first and the last step that
uses it. Tensors that are never alive at the same time may share memory. The smallest plan is NP-hard to
find (dynamic storage allocation; Garey and Johnson, 1979, SR2). The heuristic places tensors one after
the other, in several orders, each into the tightest gap, and keeps the best plan. The lower bound, the
most bytes that are alive at one step, says how good that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dl4all.allocator.allocation import aligned
from dl4all.allocator.storage import Storage
from dl4all.errors import ArgumentError
from dl4all.runtime.protocols import Span


class Lifetime(NamedTuple):
    """`nbytes` bytes that are needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


class MemoryPlace(NamedTuple):
    """The place of a tensor: its buffer, and its first byte there."""

    buffer: int
    offset: int


@dataclass(frozen=True)
class MemoryPlan:
    """Places in the order of the lifetimes, and the sizes of the buffers they are in."""

    lifetimes: tuple[Lifetime, ...]
    places: tuple[MemoryPlace, ...]
    buffers: tuple[int, ...]
    lower_bound: int  # bytes alive at the worst step, not rounded

    @property
    def nbytes(self) -> int:
        return sum(self.buffers)


def plan(
    lifetimes: Iterable[Lifetime], alignment: int = 256, largest: int = 1 << 30, *, offsets: bool = True
) -> MemoryPlan:
    """Find places for tensors.

    Args:
        lifetimes: of each tensor.
        alignment: of the places, a power of two.
        largest: bytes that a buffer may have, unless one tensor needs more.
        offsets: False for devices that bind whole buffers only: tensors then take turns in buffers.

    Raises:
        ArgumentError: a tensor ends before it begins, or has no bytes.

    >>> found = plan([Lifetime(100, 0, 1), Lifetime(300, 1, 2), Lifetime(200, 2, 3)], alignment=4)
    >>> found.nbytes, found.lower_bound, found.places[2]
    (500, 500, MemoryPlace(buffer=0, offset=300))
    """
    given = tuple(lifetimes)
    for lifetime in given:
        if lifetime.nbytes <= 0 or lifetime.last < lifetime.first:
            raise ArgumentError(f"[plan] {lifetime} has no bytes, or ends before it begins")
    numbers = range(len(given))
    orders = (
        sorted(numbers, key=lambda i: (-given[i].nbytes, given[i].first)),
        sorted(numbers, key=lambda i: (given[i].first - given[i].last, -given[i].nbytes)),
        sorted(numbers, key=lambda i: given[i].nbytes * (given[i].first - given[i].last - 1)),
        sorted(numbers, key=lambda i: (given[i].first, -given[i].nbytes)),
    )
    place_all = _with_offsets if offsets else _in_turns
    found = [place_all(given, order, alignment, largest) for order in orders]
    places, buffers = min(found, key=lambda result: sum(result[1]))
    return MemoryPlan(given, tuple(places), tuple(buffers), lower_bound(given))


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes alive at one step.

    >>> lower_bound([Lifetime(5, 0, 3), Lifetime(7, 2, 2), Lifetime(9, 3, 4)])
    14
    """
    changes = [(one.first, one.nbytes) for one in lifetimes]
    changes += [(one.last + 1, -one.nbytes) for one in lifetimes]
    most = alive = 0
    for _, change in sorted(changes):  # at one step, what ends comes before what begins
        alive += change
        most = max(most, alive)
    return most


def _with_offsets(
    lifetimes: Sequence[Lifetime], order: Iterable[int], alignment: int, largest: int
) -> tuple[list[MemoryPlace], list[int]]:
    places = [MemoryPlace(0, 0)] * len(lifetimes)
    taken: list[list[tuple[int, int, Lifetime]]] = []  # of each buffer: from, to, when
    sizes: list[int] = []
    for i in order:
        one = lifetimes[i]
        size = aligned(one.nbytes, alignment)
        for buffer, spans in enumerate(taken):
            offset = _gap([(a, b) for a, b, other in spans if other.meets(one)], size)
            if offset + size <= max(largest, sizes[buffer]):
                break
        else:
            buffer, offset = len(taken), 0
            taken.append([])
            sizes.append(0)
        places[i] = MemoryPlace(buffer, offset)
        taken[buffer].append((offset, offset + size, one))
        sizes[buffer] = max(sizes[buffer], offset + size)
    return places, sizes


def _gap(spans: list[tuple[int, int]], size: int) -> int:
    """The start of the tightest gap between spans that is large enough, or of what is behind them all."""
    best, least, end = -1, 0, 0
    for start, stop in sorted(spans):
        room = start - end
        if room >= size and (best < 0 or room < least):
            best, least = end, room
        end = max(end, stop)
    return end if best < 0 else best


def _in_turns(
    lifetimes: Sequence[Lifetime], order: Iterable[int], alignment: int, largest: int
) -> tuple[list[MemoryPlace], list[int]]:
    places = [MemoryPlace(0, 0)] * len(lifetimes)
    users: list[list[Lifetime]] = []
    sizes: list[int] = []
    for i in order:
        one = lifetimes[i]
        size = aligned(one.nbytes, alignment)
        free = [b for b, others in enumerate(users) if not any(other.meets(one) for other in others)]
        if free:  # the one that grows least, or wastes least
            buffer = min(free, key=lambda b: (max(0, size - sizes[b]), abs(sizes[b] - size)))
        else:
            buffer = len(users)
            users.append([])
            sizes.append(0)
        users[buffer].append(one)
        sizes[buffer] = max(sizes[buffer], size)
        places[i] = MemoryPlace(buffer, 0)
    return places, sizes


class Arena:
    """The memory of a plan. It goes back when the arena and all of its storages are gone."""

    def __init__(self, made: MemoryPlan, buffers: Sequence[Storage]) -> None:
        self.plan = made
        self._buffers = tuple(buffers)  # one storage for each buffer of the plan

    def storage(self, index: int) -> Storage:
        """The memory of the plan's tensor number `index`, good while the plan says that it is alive."""
        number, offset = self.plan.places[index]
        whole = self._buffers[number]
        buffer, start, available = whole.span
        nbytes = self.plan.lifetimes[index].nbytes
        bound = Span(buffer, start + offset, min(aligned(nbytes, 4), available - offset))
        return Storage(bound, nbytes, whole.allocation, whole)
