"""The memory of a device: reuse in the order of streams, a budget, and what to do when it is used up.

Each stream has a strategy of its own, a stream pool. What the host frees can be used again at once in its own
stream pool: commands of one stream run in order. Where another stream's commands use an allocation
(:meth:`Storage.used_on`), it stays out of use until an event of that stream has come; nobody waits for it.
Blocks that one stream pool does not need go to another one, after an event too.

When the driver has no more, or the budget is used up, free blocks go back, pending allocations are waited
for, garbage is collected, what is kept only to save time goes, and only then the request fails, with a list
of who holds what. Free blocks also go back when much more is reserved than was ever allocated at a time, as
happens where sizes keep changing.

An exception may come at any line, as Ctrl-C does. What tells the truth changes by one step each: what lives,
what is pending, which buffers the driver gave, and which of them a strategy has. Everything else follows from
that, and is worked out anew before the next use (docs/decisions/0008-interrupts.md).
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from dl4all.allocator.allocation import Allocation, Stats, Strategy
from dl4all.allocator.budget import Driver, MemorySource
from dl4all.allocator.host_memory import HostMemory
from dl4all.allocator.storage import Storage
from dl4all.errors import OutOfMemoryError
from dl4all.runtime import fork
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Buffer, Event, Span

LISTED = 10  # of the largest holders, in errors
SPREAD = 4  # times the peak of what is allocated may be reserved before free blocks go back
SMALL = 16 << 20  # bytes; below such a peak nobody minds

Watcher = Callable[[Literal["allocate", "free"], Allocation], None]


class StreamPool:
    """The memory of one stream."""

    __slots__ = ("strategy", "stream")

    def __init__(self, stream: Any, strategy: Strategy) -> None:
        self.stream = stream
        self.strategy = strategy


Loan = weakref.ref[Storage]


class Allocator:
    """Memory of one backend. Every method may be called from any thread.

    Garbage collection may give a storage back at any moment: in the middle of ``storage``, and in a
    thread that holds the device's lock, which ``trim`` asks for while it holds the allocator's. So that
    takes no lock; what came back is sorted in by the next request or ``trim``.

    Args:
        backend: where memory comes from.
        strategy: makes the strategy of a stream pool.
        synchronize: waits until no command of the device runs.
        record_event: ``record_event(stream)`` is the point that a stream has reached.
        stream: the one that allocations are for unless they say so.
        name: of the device, in profiles and errors.
        guard: bytes behind each allocation that belong to nobody.
    """

    # Names and shapes of what holds allocations, found by somebody above who knows tensors.
    describe: Callable[[Iterable[Allocation]], dict[Allocation, str]] = staticmethod(lambda allocations: {})

    def __init__(
        self,
        backend: MemorySource,
        strategy: Callable[[Driver], Strategy],
        synchronize: Callable[[], None],
        record_event: Callable[[Any], Event],
        stream: Any,
        *,
        name: str = "",
        guard: int = 0,
    ) -> None:
        self.name = name
        self.guard = guard
        self.driver = Driver(backend, synchronize)
        self._tracking, self._watchers, self._noting = False, list[Watcher](), False
        self._make, self._record_event = strategy, record_event
        self._stream_pools = {stream: StreamPool(stream, strategy(self.driver))}
        self._main = self._stream_pools[stream]
        self.lock = fork.rlock()
        self._torn = False  # an exception left it in the middle of something
        self._returned: deque[Loan] = deque()
        self._give_back = self._returned.append
        self._pending: dict[Allocation, list[Event]] = {}  # used by other streams
        self._moving: list[tuple[Event, StreamPool, Buffer]] = []  # free blocks between stream pools
        self._live: dict[Loan, Allocation] = {}
        self._allocated = self._peak = 0
        self._peak_before = SMALL  # the largest of those that were reset
        self._count = self._misses = 0  # requests, and those that came to the driver
        self._adopted = HostMemory(self.driver)
        self.caches: list[Callable[[], None]] = []  # each lets go of what is kept only to save time

    # Allocate and free

    def storage(self, nbytes: int, tag: str = "", stream: Any = None) -> Storage:
        """At least `nbytes` with undefined contents, for commands of `stream`, until the storage is garbage.

        Raises:
            OutOfMemoryError: there is no room, even after everything that is not needed went back.
        """
        with self.lock:
            try:
                if self._returned or self._torn:
                    self._sort_in()
                stream_pool = self._main if stream is None else self._stream_pool(stream)
                misses = self._misses
                asked = (nbytes or 1) + self.guard  # no device has buffers of size 0
                allocation = stream_pool.strategy.allocate(asked)
                if allocation is None:
                    allocation = self._find(stream_pool, asked, tag)
                allocation.stream_pool = stream_pool
                storage = Storage(allocation.span, nbytes, allocation)
                self._lend(allocation, storage, tag)
                self._count += 1
            except BaseException:
                self._torn = True
                raise
        active = recorder.active
        if active is not None:
            active.allocation(self.name, allocation.size, "pool" if self._misses == misses else "driver")
        return storage

    def adopt(self, span: Span, nbytes: int, tag: str = "") -> Storage:
        """Memory of the host that somebody else allocated, counted until the storage is garbage."""
        with self.lock:
            try:
                if self._returned or self._torn:
                    self._sort_in()
                allocation = Allocation(span, nbytes, self._adopted)
                allocation.address = span.buffer.address + span.offset
                storage = Storage(span, nbytes, allocation)
                self._lend(allocation, storage, tag)
                self.driver.count(nbytes)
            except BaseException:
                self._torn = True
                raise
        return storage

    def reuse(self, nbytes: int, tag: str) -> Storage | None:
        """As :meth:`adopt`, with memory that came back; None where there is none of this size."""
        with self.lock:
            try:
                if self._returned or self._torn:
                    self._sort_in()
                allocation = self._adopted.take(nbytes)
                if allocation is None:
                    return None
                storage = Storage(allocation.span, nbytes, allocation)
                self._lend(allocation, storage, tag)
                self.driver.count(nbytes)
            except BaseException:
                self._torn = True
                raise
        return storage

    def _lend(self, allocation: Allocation, storage: Storage, tag: str) -> None:
        allocation.nbytes, allocation.tag = storage.nbytes, tag
        # The interpreter itself puts the reference among what came back when the storage is garbage: no line
        # of Python runs then that an interrupt could cut short, and that would swallow it.
        self._live[weakref.ref(storage, self._give_back)] = allocation
        self._allocated = allocated = self._allocated + storage.nbytes
        if allocated > self._peak:
            self._peak = allocated
        if self._noting:
            self._note("allocate", allocation)

    def _stream_pool(self, stream: Any) -> StreamPool:
        stream_pool = self._stream_pools.get(stream)
        if stream_pool is None:
            stream_pool = self._stream_pools[stream] = StreamPool(stream, self._make(self.driver))
        return stream_pool

    def _sort_in(self) -> None:
        """Take in what came back."""
        if self._torn:
            self._mend()
        returned, live = self._returned, self._live
        try:
            while returned:
                loan = returned.popleft()
                allocation = live.get(loan)
                if allocation is None:  # it was sorted in before something went wrong
                    continue
                if self._noting:
                    self._note("free", allocation)
                if allocation.users is not None:  # other streams have been given commands that use it
                    self._pending[allocation] = [self._record_event(user) for user in allocation.users]
                del live[loan]
                self._allocated -= allocation.nbytes
                if allocation.users is None:
                    allocation.strategy.free(allocation)
        except BaseException:
            self._torn = True
            raise

    def begin_child(self) -> None:
        """In a forked child: another thread may have been in the middle of something, too."""
        self._torn = True

    def _mend(self) -> None:
        """Work out everything anew that an exception may have left half done."""
        live = self._live
        self._returned.extend([loan for loan in live if loan() is None])
        held = {*live.values(), *self._pending}
        known = set[Buffer]()
        for stream_pool in self._stream_pools.values():
            stream_pool.strategy.rebuild(held)
            known.update(stream_pool.strategy.blocks(held))
        self._moving = [entry for entry in self._moving if entry[2] not in known]
        known.update(block for _, _, block in self._moving)
        self.driver.mend(known, sum(one.size for one in live.values() if one.strategy is self._adopted))
        self._allocated = sum(allocation.nbytes for allocation in live.values())
        self._torn = False

    # When there is nothing waiting

    def _find(self, stream_pool: StreamPool, nbytes: int, tag: str) -> Allocation:
        if self._arrived() or self._moved_to(stream_pool, nbytes):
            allocation = stream_pool.strategy.allocate(nbytes)
            if allocation is not None:
                return allocation
        if self.driver.reserved > SPREAD * max(self._peak, self._peak_before):
            self._trim()  # sizes that never come again would each keep memory
        why = ""
        for relief in (None, self._trim, self._wait, self._collect, self._forget):
            if relief is not None and not relief():
                continue
            try:
                return stream_pool.strategy.allocate(nbytes) or self._grown(stream_pool, nbytes)
            except OutOfMemoryError as error:
                why = str(error)
        raise OutOfMemoryError(self._explanation(nbytes - self.guard, tag, stream_pool, why))

    def _grown(self, stream_pool: StreamPool, nbytes: int) -> Allocation:
        allocation = stream_pool.strategy.grow(nbytes)
        self._misses += 1
        return allocation

    def _arrived(self) -> bool:
        """Take in the allocations that other streams no longer use; returns whether there were any."""
        found = False
        for allocation, events in tuple(self._pending.items()):
            if all(event.query() for event in events):
                allocation.users = None
                del self._pending[allocation]
                allocation.strategy.free(allocation)
                found = True
        return found

    def _moved_to(self, stream_pool: StreamPool, nbytes: int) -> bool:
        """Move a free block of another stream pool here, if its commands are done; returns whether."""
        if len(self._stream_pools) > 1:
            others = [other for other in self._stream_pools.values() if other is not stream_pool]
            for other in others:
                for block in other.strategy.idle(nbytes):
                    self._moving.append((self._record_event(other.stream), other, block))
                    break
        for i, (event, origin, block) in enumerate(self._moving):
            if block.nbytes >= nbytes and (origin is stream_pool or event.query()):
                del self._moving[i]
                stream_pool.strategy.adopt(block)
                return True
        return False

    def _wait(self) -> bool:
        """Wait for what other streams still use."""
        if not self._pending:
            return False
        for events in tuple(self._pending.values()):
            for event in events:
                event.synchronize()
        self._arrived()
        self._trim()
        return True

    def _collect(self) -> bool:
        """Free what only cycles of Python objects keep alive."""
        gc.collect()
        return self._came_back()

    def _forget(self) -> bool:
        """Free what is kept only to save time."""
        for let_go in self.caches:
            let_go()
        return self._came_back()

    def _came_back(self) -> bool:
        if not self._returned:
            return False
        self._trim()
        self._wait()
        return True

    def trim(self) -> int:
        """Give every block that nothing lives in back to the driver; returns how many bytes that were."""
        with self.lock:
            try:
                return self._trim()
            except BaseException:
                self._torn = True
                raise

    def _trim(self) -> int:
        self._sort_in()  # before waiting: what comes back later may still be in use
        self._arrived()
        for _, origin, block in self._moving:
            origin.strategy.adopt(block)
        self._moving.clear()
        self._adopted.clear()
        self.driver.sweep()
        return self.driver.free(
            [b for stream_pool in self._stream_pools.values() for b in stream_pool.strategy.idle()]
        )

    # Facts

    @property
    def stats(self) -> Stats:
        """The numbers of this moment."""
        with self.lock:
            self._sort_in()
            return Stats(
                self._allocated, self.driver.reserved, self._peak, self.driver.peak,
                self._count - self._misses, self._misses,
            )  # fmt: skip

    def reset_peak(self) -> None:
        """Let the peaks begin anew."""
        with self.lock:
            self._sort_in()
            self._peak_before = max(self._peak_before, self._peak)
            self._peak, self.driver.peak = self._allocated, self.driver.reserved

    def live(self) -> list[Allocation]:
        """The allocations on loan, the largest first."""
        with self.lock:
            self._sort_in()
            return sorted(self._live.values(), key=lambda allocation: -allocation.nbytes)

    def largest(self) -> int:
        """Bytes of the largest free allocation."""
        with self.lock:
            self._sort_in()
            return max(stream_pool.strategy.largest() for stream_pool in self._stream_pools.values())

    # Being watched

    def track(self, enabled: bool) -> None:
        """Let allocations note which line of the program asked for them, or no longer."""
        self._tracking = enabled
        self._noting = enabled or bool(self._watchers)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` at each allocation, and when a free is noticed; returns what ends that."""

        def stop() -> None:
            with self.lock:
                self._sort_in()
                self._watchers.remove(watcher)
                self._noting = self._tracking or bool(self._watchers)

        with self.lock:
            self._sort_in()
            self._watchers.append(watcher)
            self._noting = True
        return stop

    def _note(self, what: Literal["allocate", "free"], allocation: Allocation) -> None:
        if what == "allocate":
            allocation.origin = _origin() if self._tracking else ""
        for watcher in self._watchers:
            watcher(what, allocation)

    def _explanation(self, nbytes: int, tag: str, stream_pool: StreamPool, why: str) -> str:
        live = self.live()
        used, reserved = sum(allocation.size for allocation in live), self.driver.reserved
        limit = "" if self.driver.limit is None else f"; the limit is {amount(self.driver.limit)}"
        lines = [
            f"[{tag or 'allocate'}] {amount(nbytes)} do not fit on {self.name or 'the device'}: "
            f"{amount(used)} are in use, {amount(reserved - used)} reserved beside them with "
            f"{amount(stream_pool.strategy.largest())} in one piece, "
            f"{amount(self.driver.room())} still to be had from the driver{limit}. Use a smaller batch, or "
            f"free tensors. ({why})"
        ]
        if live:
            lines.append(f"The largest of {len(live)} that are alive:")
            lines += table(live[:LISTED], self.describe(live[:LISTED]))
        return "\n".join(lines)


def table(allocations: Iterable[Allocation], described: dict[Allocation, str]) -> list[str]:
    """A line for each allocation: bytes, what it is for, who holds it, where it was made."""
    return [
        f"  {amount(allocation.nbytes):>10}  {allocation.tag or '-':<12}  {described.get(allocation, '')}"
        f"{f'  {allocation.origin}' if allocation.origin else ''}".rstrip()
        for allocation in allocations
    ]


def amount(nbytes: int) -> str:
    """Bytes for people.

    >>> amount(512), amount(64 << 20)
    ('512 B', '64.0 MiB')
    """
    if nbytes < 1024:
        return f"{nbytes} B"
    size, unit = float(nbytes), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, bigger
    return f"{size:.1f} {unit}"


def _origin() -> str:
    """The innermost line outside the library that led here."""
    frame = sys._getframe(3)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dl4all"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
