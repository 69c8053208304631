"""Small allocations: slots of one size in slabs, which are cut out of larger memory.

Among large allocations, each small one that lives long would keep two free ranges from joining.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from dl4all.allocator.allocation import Allocation, Strategy
from dl4all.runtime.protocols import Buffer, Span

SLAB = 32 << 10
LARGEST = 4096  # that a slot may be


class Slabs:
    """Slots are of powers of two bytes, from `least` on; slabs come from another strategy."""

    def __init__(self, below: Strategy, least: int) -> None:
        self._below = below
        self._least = least
        self._free: dict[int, list[Allocation]] = {}  # slots by size
        self._used: dict[Allocation, list[Allocation]] = {}

    def allocate(self, nbytes: int) -> Allocation | None:
        size = 1 << (nbytes - 1).bit_length()
        slots = self._free.get(size if size > self._least else self._least)
        if slots:
            return slots.pop()
        slab = self._below.allocate(SLAB)
        return None if slab is None else self._cut(slab, nbytes)

    def grow(self, nbytes: int) -> Allocation:
        return self._cut(self._below.grow(SLAB), nbytes)

    def _cut(self, slab: Allocation, nbytes: int) -> Allocation:
        size = max(self._least, 1 << (nbytes - 1).bit_length())
        buffer, start, _ = slab.span
        self._used[slab] = slots = [
            Allocation(Span(buffer, start + offset, size), size, self) for offset in range(0, SLAB, size)
        ]
        free = self._free.setdefault(size, [])
        free += reversed(slots)  # the first is taken first
        return free.pop()

    def free(self, allocation: Allocation) -> None:
        self._free[allocation.size].append(allocation)

    def idle(self, least: int = 0) -> Iterator[Buffer]:
        """None of its own; slabs without a slot on loan go back to where they come from."""
        free = {slot for slots in self._free.values() for slot in slots}
        for slab, slots in tuple(self._used.items()):
            if free.issuperset(slots):
                free.difference_update(slots)
                del self._used[slab]
                self._below.free(slab)
        self._free = {size: [s for s in slots if s in free] for size, slots in self._free.items()}
        return iter(())

    def adopt(self, buffer: Buffer) -> None:
        self._below.adopt(buffer)

    def largest(self) -> int:
        return max((size for size, slots in self._free.items() if slots), default=0)

    @property
    def slabs(self) -> Iterable[Allocation]:
        """The part that it holds of the strategy that slabs come from."""
        return self._used

    def rebuild(self, held: Collection[Allocation]) -> None:
        self._free = {}
        for slots in self._used.values():
            self._free.setdefault(slots[0].size, []).extend(s for s in reversed(slots) if s not in held)

    def blocks(self, held: Iterable[Allocation]) -> Iterator[Buffer]:
        """None of its own."""
        return iter(())
