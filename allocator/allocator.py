"""The memory of a device: reuse in the order of streams, a budget, and what to do when it is used up.

Each stream has a strategy of its own, a lane. What the host frees can be used again at once in its own lane:
commands of one stream run in order. Where another stream's commands use a piece (:meth:`Storage.used_on`),
it stays out of use until an event of that stream has come; nobody waits for it. Blocks that one lane does
not need go to another one, after an event too.

When the driver has no more, or the budget is used up, free blocks go back, pending pieces are waited for,
garbage is collected, what is kept only to save time goes, and only then the request fails, with a list of
who holds what.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from dl4all.allocator.allocation import Piece, Stats, Strategy
from dl4all.allocator.budget import Driver, Source
from dl4all.errors import OutOfMemoryError
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Buffer, Event, Span

LISTED = 10  # of the largest holders, in errors


Watcher = Callable[[Literal["allocate", "free"], Piece], None]


class Lane:
    """The memory of one stream."""

    __slots__ = ("strategy", "stream")

    def __init__(self, stream: Any, strategy: Strategy) -> None:
        self.stream = stream
        self.strategy = strategy


class _Adopted:
    """What is only counted."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def free(self, piece: Piece) -> None:
        """It is gone."""
        self._driver.count(-piece.size)


class Allocator:
    """Memory of one backend. Every method may be called from any thread.

    Garbage collection may call ``release`` at any moment: in the middle of ``allocate``, and in a
    thread that holds the device's lock, which ``trim`` asks for while it holds the allocator's. So
    ``release`` takes no lock; what it was given is sorted in by the next ``allocate`` or ``trim``.

    Args:
        backend: where memory comes from.
        strategy: makes the strategy of a lane.
        synchronize: waits until no command of the device runs.
        record_event: ``record_event(stream)`` is the point that a stream has reached.
        stream: the one that allocations are for unless they say so.
        name: of the device, in profiles and errors.
        guard: bytes behind each piece that belong to nobody.
    """

    # Names and shapes of what holds pieces, found by somebody above who knows tensors.
    describe: Callable[[Iterable[Piece]], dict[Piece, str]] = staticmethod(lambda pieces: {})

    def __init__(
        self,
        backend: Source,
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
        self._lanes = {stream: Lane(stream, strategy(self.driver))}
        self._main = self._lanes[stream]
        self._lock = threading.RLock()
        self._returned: deque[Piece] = deque()
        self.release = self._returned.append  # takes back a piece that `allocate` gave
        self._pending: deque[tuple[list[Event], Piece]] = deque()  # used by other streams
        self._moving: list[tuple[Event, Lane, Buffer]] = []  # free blocks between lanes
        self._live: set[Piece] = set()
        self._allocated = self._peak = 0
        self._count = self._misses = 0  # requests, and those that came to the driver
        self._adopted = _Adopted(self.driver)
        self.caches: list[Callable[[], None]] = []  # each lets go of what is kept only to save time

    # Allocate and free

    def allocate(self, nbytes: int, tag: str = "", stream: Any = None) -> Piece:
        """A piece of at least `nbytes`, with undefined contents, for commands of `stream`.

        Raises:
            OutOfMemoryError: there is no room, even after everything that is not needed went back.
        """
        asked = nbytes + self.guard
        with self._lock:
            if self._returned:
                self._sort_in()
            lane = self._main if stream is None else self._lane(stream)
            misses = self._misses
            piece = lane.strategy.allocate(asked)
            if piece is None:
                piece = self._find(lane, asked, tag)
            piece.lane = lane
            self._count += 1
            self._lend(piece, nbytes, tag)
            source: Literal["pool", "driver"] = "pool" if self._misses == misses else "driver"
        active = recorder.active
        if active is not None:
            active.allocation(self.name, piece.size, source)
        return piece

    def adopt(self, nbytes: int, tag: str = "") -> Piece:
        """Count memory of the host that somebody else allocated, until it is released."""
        piece = Piece(Span(None, 0, nbytes), nbytes, self._adopted)
        with self._lock:
            if self._returned:
                self._sort_in()
            self.driver.count(nbytes)
            self._lend(piece, nbytes, tag)
        return piece

    def _lend(self, piece: Piece, nbytes: int, tag: str) -> None:
        piece.nbytes, piece.tag = nbytes, tag
        self._live.add(piece)
        self._allocated = allocated = self._allocated + nbytes
        if allocated > self._peak:
            self._peak = allocated
        if self._noting:
            self._note("allocate", piece)

    def _lane(self, stream: Any) -> Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            lane = self._lanes[stream] = Lane(stream, self._make(self.driver))
        return lane

    def _sort_in(self) -> None:
        returned, live = self._returned, self._live
        while returned:
            piece = returned.popleft()
            live.discard(piece)
            self._allocated -= piece.nbytes
            if self._noting:
                self._note("free", piece)
            if piece.users is None:
                piece.strategy.free(piece)
            else:
                self._free_later(piece)

    def _free_later(self, piece: Piece) -> None:
        """Other streams have been given commands that use it."""
        try:
            events = [self._record_event(stream) for stream in piece.users or ()]
        except BaseException:
            piece.nbytes = 0  # it is not counted any more
            self._returned.append(piece)
            raise
        piece.users = None
        self._pending.append((events, piece))

    # When there is nothing waiting

    def _find(self, lane: Lane, nbytes: int, tag: str) -> Piece:
        if self._arrived() or self._moved_to(lane, nbytes):
            piece = lane.strategy.allocate(nbytes)
            if piece is not None:
                return piece
        why = ""
        for relief in (None, self.trim, self._wait, self._collect, self._forget):
            if relief is not None and not relief():
                continue
            try:
                return lane.strategy.allocate(nbytes) or self._grown(lane, nbytes)
            except OutOfMemoryError as error:
                why = str(error)
        raise OutOfMemoryError(self._explanation(nbytes - self.guard, tag, lane, why))

    def _grown(self, lane: Lane, nbytes: int) -> Piece:
        piece = lane.strategy.grow(nbytes)
        self._misses += 1
        return piece

    def _arrived(self) -> bool:
        """Take in the pieces that other streams no longer use; returns whether there were any."""
        found = False
        for _ in range(len(self._pending)):
            events, piece = self._pending.popleft()
            if all(event.query() for event in events):
                piece.strategy.free(piece)
                found = True
            else:
                self._pending.append((events, piece))
        return found

    def _moved_to(self, lane: Lane, nbytes: int) -> bool:
        """Move a free block of another lane here, if its commands are done; returns whether."""
        if len(self._lanes) > 1:
            others = [other for other in self._lanes.values() if other is not lane]
            for other in others:
                for block in other.strategy.idle(nbytes):
                    self._moving.append((self._record_event(other.stream), other, block))
                    break
        for i, (event, origin, block) in enumerate(self._moving):
            if block.nbytes >= nbytes and (origin is lane or event.query()):
                del self._moving[i]
                lane.strategy.adopt(block)
                return True
        return False

    def _wait(self) -> bool:
        """Wait for what other streams still use."""
        if not self._pending:
            return False
        for events, _ in self._pending:
            for event in events:
                event.synchronize()
        self._arrived()
        self.trim()
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
        self.trim()
        self._wait()
        return True

    def trim(self) -> int:
        """Give every block that nothing lives in back to the driver; returns how many bytes that were."""
        with self._lock:
            self._sort_in()  # before waiting: what comes back later may still be in use
            self._arrived()
            for _, origin, block in self._moving:
                origin.strategy.adopt(block)
            self._moving.clear()
            return self.driver.free([b for lane in self._lanes.values() for b in lane.strategy.idle()])

    # Facts

    @property
    def stats(self) -> Stats:
        """The numbers of this moment."""
        with self._lock:
            self._sort_in()
            return Stats(
                self._allocated, self.driver.reserved, self._peak, self.driver.peak,
                self._count - self._misses, self._misses,
            )  # fmt: skip

    def reset_peak(self) -> None:
        """Let the peaks begin anew."""
        with self._lock:
            self._sort_in()
            self._peak, self.driver.peak = self._allocated, self.driver.reserved

    def live(self) -> list[Piece]:
        """What is on loan, the largest first."""
        with self._lock:
            self._sort_in()
            return sorted(self._live, key=lambda piece: -piece.nbytes)

    def largest(self) -> int:
        """Bytes of the largest free piece."""
        with self._lock:
            self._sort_in()
            return max(lane.strategy.largest() for lane in self._lanes.values())

    # Being watched

    def track(self, enabled: bool) -> None:
        """Let pieces note which line of the program asked for them, or no longer."""
        self._tracking = enabled
        self._noting = enabled or bool(self._watchers)

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` at each allocation, and when a free is noticed; returns what ends that."""

        def stop() -> None:
            with self._lock:
                self._sort_in()
                self._watchers.remove(watcher)
                self._noting = self._tracking or bool(self._watchers)

        with self._lock:
            self._sort_in()
            self._watchers.append(watcher)
            self._noting = True
        return stop

    def _note(self, what: Literal["allocate", "free"], piece: Piece) -> None:
        if what == "allocate":
            piece.origin = _origin() if self._tracking else ""
        for watcher in self._watchers:
            watcher(what, piece)

    def _explanation(self, nbytes: int, tag: str, lane: Lane, why: str) -> str:
        live = self.live()
        used, reserved = sum(piece.size for piece in live), self.driver.reserved
        limit = "" if self.driver.limit is None else f"; the limit is {amount(self.driver.limit)}"
        lines = [
            f"[{tag or 'allocate'}] {amount(nbytes)} do not fit on {self.name or 'the device'}: "
            f"{amount(used)} are in use, {amount(reserved - used)} reserved beside them with "
            f"{amount(lane.strategy.largest())} in one piece, "
            f"{amount(self.driver.room())} still to be had from the driver{limit}. Use a smaller batch, or "
            f"free tensors. ({why})"
        ]
        if live:
            lines.append(f"The largest of {len(live)} that are alive:")
            lines += table(live[:LISTED], self.describe(live[:LISTED]))
        return "\n".join(lines)


def table(pieces: Iterable[Piece], described: dict[Piece, str]) -> list[str]:
    """A line for each piece: bytes, what it is for, who holds it, where it was made."""
    return [
        f"  {amount(piece.nbytes):>10}  {piece.tag or '-':<12}  {described.get(piece, '')}"
        f"{f'  {piece.origin}' if piece.origin else ''}".rstrip()
        for piece in pieces
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
