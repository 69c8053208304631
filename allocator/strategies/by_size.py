"""The strategy of a backend: which one for which size."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

from dl4all.allocator.allocation import Allocation, Strategy
from dl4all.allocator.budget import Driver
from dl4all.allocator.strategies import slabs
from dl4all.allocator.strategies.best_fit import GRAIN, BestFit
from dl4all.allocator.strategies.dedicated import Direct
from dl4all.allocator.strategies.size_class import Pool
from dl4all.allocator.strategies.slabs import Slabs
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.protocols import Buffer

HUGE = 256 << 20


class BySize:
    """Slabs for small allocations, buffers of their own for huge ones, large blocks for all others."""

    def __init__(self, driver: Driver, alignment: int) -> None:
        self._large = BestFit(driver, alignment)
        self._small = Slabs(self._large, max(GRAIN, alignment))
        self._huge = Direct(driver)

    def allocate(self, nbytes: int) -> Allocation | None:
        if nbytes > slabs.LARGEST:
            return self._large.allocate(nbytes) if nbytes < HUGE else self._huge.allocate(nbytes)
        return self._small.allocate(nbytes)

    def grow(self, nbytes: int) -> Allocation:
        if nbytes >= HUGE:
            return self._huge.grow(nbytes)
        if nbytes <= slabs.LARGEST:
            with contextlib.suppress(OutOfMemoryError):  # there may still be room for less than a slab
                return self._small.grow(nbytes)
            allocation = self._large.allocate(nbytes)
            if allocation is not None:
                return allocation
        return self._large.grow(nbytes)

    def free(self, allocation: Allocation) -> None:
        """Take an allocation back."""
        allocation.strategy.free(allocation)

    def idle(self, least: int = 0) -> Iterator[Buffer]:
        yield from self._huge.idle(least)
        yield from self._small.idle(least)
        yield from self._large.idle(least)

    def adopt(self, buffer: Buffer) -> None:
        (self._large if buffer.nbytes < HUGE else self._huge).adopt(buffer)

    def rebuild(self, held: Collection[Allocation]) -> None:
        self._small.rebuild(held)
        self._large.rebuild({*held, *self._small.slabs})
        self._huge.rebuild(held)

    def blocks(self, held: Iterable[Allocation]) -> Iterator[Buffer]:
        yield from self._large.blocks(held)
        yield from self._huge.blocks(held)

    def largest(self) -> int:
        return max(self._small.largest(), self._large.largest(), self._huge.largest())


def choose(driver: Driver, offset_alignment: int, forced: str = "") -> Strategy:
    """The strategy for a backend that binds at multiples of `offset_alignment`, 0 for whole buffers only.

    `forced` is ``"pool"`` or ``"best_fit"``; the latter does nothing for a backend that it cannot serve.
    """
    if not offset_alignment or forced == "pool":
        return Pool(driver)
    return BySize(driver, offset_alignment)
