"""Random allocations, frees and streams: what must hold whatever a program does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dl4all.allocator.allocation import Allocation
from dl4all.allocator.planner import Lifetime, plan
from dl4all.allocator.storage import Storage
from tests.support.fake_backend import MIB, FakeStream, give, make, take

SIZES = st.one_of(
    st.sampled_from([1000, 50_000, 2 * MIB, 20 * MIB]),  # that come again
    st.integers(1, 5000),
    st.integers(4096, 300_000),
    st.integers(1, 40 * MIB),
    st.integers(250 * MIB, 300 * MIB),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), SIZES),
        st.tuples(st.just("free"), st.integers(0, 2**16)),
        st.tuples(st.just("use elsewhere"), st.integers(0, 2**16)),
        st.tuples(st.just("run"), st.integers(0, 2**16)),
        st.tuples(st.just("trim"), st.just(0)),
    ),
    max_size=120,
)


class Program:
    """Two streams, and what they are told to do with memory. Every step is checked."""

    def __init__(self, strategy: str) -> None:
        self.backend, self.allocator = make(strategy)
        self.streams = [self.allocator._main.stream, FakeStream()]
        self.held: list[tuple[Storage, FakeStream]] = []
        # Who used the memory: buffer, first byte, last byte, stream, and how far that was at the time.
        self.uses: list[tuple[int, int, int, FakeStream, int]] = []
        self.allocator.driver._synchronize = self.synchronize

    def synchronize(self) -> None:
        """Everything has run."""
        for stream in self.streams:
            stream.done = stream.recorded
        self.uses.clear()
        self.backend.wait()

    def run(self, steps: list[tuple[str, int]]) -> None:
        for i, (what, number) in enumerate(steps):
            stream = self.streams[i % 3 == 0]
            if what == "allocate":
                self.allocate(number, stream)
            elif what == "free" and self.held:
                del self.held[number % len(self.held)]
            elif what == "use elsewhere" and self.held:
                self.use_elsewhere(*self.held[number % len(self.held)])
            elif what == "run":
                stream.done += number % (stream.recorded - stream.done + 1)
            elif what == "trim":
                self.allocator.trim()
            self.check()

    def allocate(self, nbytes: int, stream: FakeStream) -> None:
        storage = self.allocator.storage(nbytes, "", stream)
        allocation = storage.allocation
        assert allocation is not None
        buffer, start, bound = allocation.span
        assert start % 64 == 0
        assert bound >= nbytes
        assert start + allocation.size <= buffer.nbytes
        assert not buffer.freed
        for key, first, last, user, at in self.uses:
            if key == id(buffer) and first < start + allocation.size and start < last and user is not stream:
                # What was freed by the host is used by another stream only when that got so far; blocks
                # that move between streams have been waited for as well.
                assert user.done >= at, "used before the event"
        self.use(storage, stream)
        self.held.append((storage, stream))

    def use_elsewhere(self, storage: Storage, owner: FakeStream) -> None:
        other = self.streams[owner is self.streams[0]]
        storage.used_on(other)
        self.use(storage, other)

    def use(self, storage: Storage, stream: FakeStream) -> None:
        stream.recorded += 1
        buffer, start, nbytes = storage.span
        self.uses.append((id(buffer), start, start + nbytes, stream, stream.recorded))

    def check(self) -> None:
        live = self.allocator.live()
        assert {id(allocation) for allocation in live} == {id(storage.allocation) for storage, _ in self.held}
        assert_apart(live)
        stats = self.allocator.stats
        assert stats.allocated == sum(storage.nbytes for storage, _ in self.held) <= stats.peak
        assert stats.reserved == self.backend.taken <= stats.peak_reserved
        assert sum(allocation.size for allocation in live) <= stats.reserved


def assert_apart(allocations: list[Allocation]) -> None:
    """No two of them share a byte."""
    spans = sorted((id(p.span.buffer), p.span.offset, p.span.offset + p.size) for p in allocations)
    for (buffer, _, end), (other, start, _) in pairwise(spans):
        assert buffer != other or end <= start


@pytest.mark.parametrize("strategy", ["pool", "best_fit"])
def test_random_programs(strategy: str) -> None:
    @settings(max_examples=250, deadline=None)
    @given(STEPS)
    def check(steps: list[tuple[str, int]]) -> None:
        program = Program(strategy)
        program.run(steps)
        program.held.clear()
        program.check()
        program.synchronize()
        program.allocator.trim()
        assert program.allocator.stats.allocated == 0
        assert program.backend.taken == 0

    check()


def test_memory_is_used_again_at_once_on_its_stream_and_after_the_event_elsewhere() -> None:
    for strategy in ("pool", "best_fit"):
        _, allocator = make(strategy)
        other = FakeStream()
        first = allocator.storage(2 * MIB)
        place = first.span
        del first
        assert allocator.storage(2 * MIB).span == place  # nobody waited

        shared = allocator.storage(3 * MIB)
        place = shared.span
        other.recorded += 1
        shared.used_on(other)
        del shared
        elsewhere = allocator.storage(3 * MIB)
        assert elsewhere.span != place  # the other stream has not come so far
        other.done = other.recorded
        assert allocator.storage(3 * MIB).span == place


def test_memory_waits_for_every_stream_that_uses_it() -> None:
    for strategy in ("pool", "best_fit"):
        _, allocator = make(strategy)
        fast, slow = FakeStream(), FakeStream()
        shared = allocator.storage(2 * MIB)
        place = shared.span
        for stream in (fast, slow):
            stream.recorded += 1
            shared.used_on(stream)
        del shared
        fast.done = fast.recorded
        elsewhere = allocator.storage(2 * MIB)
        assert elsewhere.span != place
        slow.done = slow.recorded
        assert allocator.storage(2 * MIB).span == place


def test_a_block_moves_to_another_stream_when_that_is_done() -> None:
    for strategy in ("pool", "best_fit"):
        backend, allocator = make(strategy)
        main, other = allocator._main.stream, FakeStream()
        give(take(allocator, 20 * MIB))
        main.recorded = 5
        take(allocator, 20 * MIB, stream=other)
        assert backend.asked == 2  # the first stream may still use its block
        main.done = 5
        take(allocator, 20 * MIB, stream=other)
        assert backend.asked == 2


def test_what_other_streams_use_is_waited_for_before_giving_up() -> None:
    for strategy in ("pool", "best_fit"):
        _, allocator = make(strategy, budget=10 * MIB)
        other = FakeStream()
        other.recorded = 3
        shared = allocator.storage(8 * MIB)
        shared.used_on(other)
        del shared
        assert allocator.storage(8 * MIB).nbytes == 8 * MIB
        assert other.done == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=40
    ),
    st.booleans(),
)
def test_plans_hold_what_they_promise(given_: list[tuple[int, int, int]], offsets: bool) -> None:
    lifetimes = [Lifetime(nbytes, first, first + steps) for nbytes, first, steps in given_]
    found = plan(lifetimes, 64, offsets=offsets)
    assert found.nbytes >= found.lower_bound
    for i, (one, place) in enumerate(zip(lifetimes, found.places, strict=True)):
        assert place.offset % 64 == 0
        assert offsets or place.offset == 0
        assert place.offset + one.nbytes <= found.buffers[place.buffer]
        for other, elsewhere in zip(lifetimes[:i], found.places[:i], strict=True):
            if one.meets(other) and place.buffer == elsewhere.buffer:
                assert (
                    place.offset + one.nbytes <= elsewhere.offset
                    or elsewhere.offset + other.nbytes <= place.offset
                )
