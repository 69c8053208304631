"""Allocations cut out of large blocks: the free range that fits best, neighbours joined again.

A freed allocation joins its neighbours at once. Keeping allocations in lists of their sizes would find them
in half the time, but while they wait they lie between ranges that could be one, and larger allocations find
no place.

Blocks are small while a program takes more and more, so that the last one is never much of the whole. Where
free blocks are too small for a request, they go back to the driver for the larger one that comes. And when
most of what had to be added is free again, as after the first training step, the free blocks are replaced by
one: no allocation has to end at a border any more, and what is reserved is what was needed at once. That
happens only after the driver was asked for more, and so comes to an end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator

from dl4all.allocator.allocation import Allocation, aligned, extent
from dl4all.allocator.budget import Driver
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.protocols import Buffer, Span

GRAIN = 64  # bytes of a cache line; memory that the host maps is coherent, so that no larger atom counts
SMALLEST, LARGEST = 1 << 18, 64 << 20  # of the blocks that are added
SHARE = 128  # a block that is added is at least this part of all that is reserved
LARGE_SHARE = 128  # allocations of less than this part of all count as small
MARGIN = 128  # where one block proved too small, the next is larger by this part of all
MERGE_FROM = 1.25  # free blocks are replaced by one that is so many times as large as the largest
MERGES = 16  # that are done before the most that is used has grown by an eighth
MERGED = 1 << 30  # the most that blocks are replaced by

# Places in all blocks are counted in one number: the block's, then the offset. Blocks never touch.
OFFSET_BITS = 48
OFFSETS = (1 << OFFSET_BITS) - 1


class BestFit:
    """`alignment` is that of the offsets, `range_limit` the most that a dispatch can bind."""

    def __init__(self, driver: Driver, alignment: int = GRAIN) -> None:
        self._driver = driver
        self._grain = max(GRAIN, alignment)
        self._range_limit = driver.limits.storage_buffer_range
        self._blocks: dict[int, Buffer] = {}
        self._count = 0
        self._free: list[tuple[int, int]] = []  # sizes and places, sorted
        self._sizes: dict[int, int] = {}  # of the free ranges, by where they begin
        self._begins: dict[int, int] = {}  # and where those begin that end at a place
        self._total = 0  # bytes of all blocks
        self._used = self._peak = 0  # bytes of allocations on loan
        self._extents: dict[int, int] = {}  # of the blocks, by number
        self._idle: dict[int, int] = {}  # of those without an allocation
        self._margin = 0  # bytes beside the most that was used, when blocks are replaced
        self._made_for = 0  # the most that is used, at that time
        self._merges = 0  # since the most that is used became much more
        self._renewed = 0  # how much it was then

    # Handing out

    def allocate(self, nbytes: int) -> Allocation | None:
        if len(self._idle) > 1:
            self._merge()
        grain = self._grain
        return self._cut((nbytes + grain - 1) & -grain, nbytes)

    def free(self, allocation: Allocation) -> None:
        self._used -= allocation.size
        self._add_joined(allocation.place, allocation.size)

    def _cut(self, size: int, nbytes: int) -> Allocation | None:
        index = bisect_left(self._free, (size, 0))
        if index == len(self._free):
            return None
        found, place = self._free.pop(index)
        del self._sizes[place], self._begins[place + found]
        self._idle.pop(place >> OFFSET_BITS, None)
        if found > size:
            # Small allocations, which often live longer, from the other end: between large ones they would be
            # in the way.
            if size * LARGE_SHARE < self._total:
                self._add(place, found - size)
                place += found - size
            else:
                self._add(place + size, found - size)
        self._used = used = self._used + size
        if used > self._peak:
            self._peak = used
        bound = size if size <= self._range_limit else extent(size, nbytes, self._range_limit)
        return Allocation(Span(self._blocks[place >> OFFSET_BITS], place & OFFSETS, bound), size, self, place)

    # Free ranges

    def _add(self, place: int, size: int) -> None:
        insort(self._free, (size, place))
        self._sizes[place] = size
        self._begins[place + size] = place
        number = place >> OFFSET_BITS
        if size == self._extents[number]:
            self._idle[number] = size

    def _remove(self, place: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, place))]
        del self._sizes[place], self._begins[place + size]

    def _add_joined(self, begin: int, size: int) -> None:
        """Add a free range, as one with those that it touches."""
        end = begin + size
        before = self._begins.get(begin)
        if before is not None:
            self._remove(before, begin - before)
            begin = before
        behind = self._sizes.get(end)
        if behind is not None:
            self._remove(end, behind)
            end += behind
        self._add(begin, end - begin)

    # Blocks

    def grow(self, nbytes: int) -> Allocation:
        size = aligned(nbytes, self._grain)
        driver = self._driver
        usual = min(LARGEST, max(SMALLEST, driver.reserved // SHARE), driver.limits.allocation_size)
        self._replace(max(size, usual))
        wanted = min(max(size, usual), max(size, driver.room()))
        try:
            block = driver.allocate(wanted)
        except OutOfMemoryError:
            if wanted == size:
                raise
            block = driver.allocate(size)
        self.adopt(block)
        if self._used + size <= self._made_for:  # allocations did not lie as well as they might
            self._margin = max(3 * self._margin, self._peak // MARGIN)
        self._made_for = 0
        allocation = self._cut(size, nbytes)
        assert allocation is not None
        return allocation

    def _replace(self, size: int) -> None:
        """Give blocks back that are free and too small for what comes, up to its size."""
        too_small: list[Buffer] = []
        for block in self.idle():
            if block.nbytes > size:
                self.adopt(block)
                break
            too_small.append(block)
            size -= block.nbytes
        self._driver.free(too_small)

    def _merge(self) -> None:
        """Replace the free blocks by one, if they are much larger together than the largest of them."""
        idle, largest = sum(self._idle.values()), max(self._idle.values())
        size = min(idle, aligned(self._peak + self._margin - self._used, self._grain), MERGED)
        if MERGE_FROM * largest > size and idle - size < self._peak // MARGIN:
            return  # it would be neither much larger than they are, nor much less than all of them
        if 8 * self._peak > 9 * self._renewed:
            self._renewed, self._merges = self._peak, 0
        if self._merges == MERGES:
            return
        self._merges += 1
        for block in self._driver.replace(list(self.idle()), size):
            self.adopt(block)
        self._made_for = self._peak

    def idle(self, least: int = 0) -> Iterator[Buffer]:
        for number, size in sorted(self._idle.items(), key=lambda item: item[1]):
            if size >= least:
                self._remove(number << OFFSET_BITS, size)
                del self._idle[number], self._extents[number]
                self._total -= size
                yield self._blocks.pop(number)

    def adopt(self, buffer: Buffer) -> None:
        self._count += 1
        usable = buffer.nbytes & -self._grain
        self._blocks[self._count], self._extents[self._count] = buffer, usable
        self._total += usable
        self._add(self._count << OFFSET_BITS, usable)

    def largest(self) -> int:
        return self._free[-1][0] if self._free else 0

    # After an exception

    def rebuild(self, held: Collection[Allocation]) -> None:
        used = sorted((one.place, one.size) for one in held if one.strategy is self)
        self._free, self._sizes, self._begins, self._idle = [], {}, {}, {}
        self._extents = {number: block.nbytes & -self._grain for number, block in self._blocks.items()}
        self._total, self._used = sum(self._extents.values()), sum(size for _, size in used)
        for number, nbytes in self._extents.items():
            begin, end = number << OFFSET_BITS, (number << OFFSET_BITS) + nbytes
            for place, size in used:
                if begin <= place < end:
                    if place > begin:
                        self._add(begin, place - begin)
                    begin = place + size
            if begin < end:
                self._add(begin, end - begin)

    def blocks(self, held: Iterable[Allocation]) -> Iterator[Buffer]:
        yield from self._blocks.values()
