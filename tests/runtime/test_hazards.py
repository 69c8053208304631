"""Dependencies between spans, against a model that looks at every byte."""

from __future__ import annotations

import random

import pytest

from dl4all.runtime.hazards import MANY, Hazards
from dl4all.runtime.protocols import Span

A, B = "a", "b"  # any two objects


@pytest.mark.parametrize(
    ("reads", "writes", "found"),
    [
        ([Span(A, 0, 4)], [], False),  # read after read
        ([], [Span(A, 0, 4)], True),  # write after read
        ([Span(A, 12, 4)], [], True),  # read after write
        ([], [Span(A, 12, 4)], True),  # write after write
        ([Span(A, 4, 8)], [Span(A, 4, 8)], False),  # between the two
        ([Span(A, 11, 2)], [], True),  # the first byte only
        ([], [Span(B, 0, 100)], False),
        ([Span(A, 12, 0)], [], False),  # nothing
    ],
)
def test_after_reading_4_bytes_and_writing_4(reads: list[Span], writes: list[Span], found: bool) -> None:
    hazards = Hazards()
    hazards.add([Span(A, 0, 4)], [Span(A, 12, 4)])
    assert hazards.found(reads, writes) is found


@pytest.mark.parametrize("seed", range(20))
def test_random_spans(seed: int) -> None:
    chosen = random.Random(seed)
    hazards = Hazards()
    read: set[tuple[str, int]] = set()
    written: set[tuple[str, int]] = set()

    def some() -> list[Span]:
        return [
            Span(chosen.choice((A, B)), 4 * chosen.randrange(12), 4 * chosen.randrange(1, 4))
            for _ in range(chosen.randrange(3))
        ]

    def touched(spans: list[Span]) -> set[tuple[str, int]]:
        return {(s.buffer, i) for s in spans for i in range(s.offset, s.offset + s.nbytes)}

    for _ in range(60):
        reads, writes = some(), some()
        depends = bool(touched(reads) & written or touched(writes) & (read | written))
        assert hazards.found(reads, writes) is depends
        if depends:
            hazards.clear()
            read, written = set(), set()
        hazards.add(reads, writes)
        read |= touched(reads)
        written |= touched(writes)


def test_a_long_list_counts_as_everything() -> None:
    """Rather one barrier too many than a search through thousands of spans, or memory without end."""
    hazards = Hazards()
    for i in range(10 * MANY):
        hazards.add([], [Span(A, 8 * i, 4)])
    assert hazards.found([Span(A, 4, 4)], [])
    assert not hazards.found([Span(B, 4, 4)], [])
    assert len(hazards._written[A]) == MANY


def test_a_buffer_that_was_freed_is_forgotten() -> None:
    hazards = Hazards()
    hazards.add([Span(A, 0, 4)], [Span(B, 0, 4)])
    hazards.forget(B)
    assert not hazards.found([Span(B, 0, 4)], [])
    assert hazards.found([], [Span(A, 0, 4)])


def test_a_longer_piece_with_the_same_start_counts() -> None:
    hazards = Hazards()
    hazards.add([], [Span(A, 0, 64)])
    hazards.add([], [Span(A, 0, 128)])
    assert hazards.found([Span(A, 64, 64)], [])


@pytest.mark.parametrize("seed", range(5))
def test_pieces_with_the_same_starts(seed: int) -> None:
    """Without a barrier in between, beside a plain list of all spans."""
    chosen, hazards, spans = random.Random(seed), Hazards(), list[Span]()
    for _ in range(MANY - 1):
        span = Span(A, 64 * chosen.randrange(6), 64 * chosen.randrange(1, 5))
        asked = Span(A, 64 * chosen.randrange(10), 64)
        overlaps = any(s.offset < asked.offset + 64 and asked.offset < s.offset + s.nbytes for s in spans)
        assert hazards.found([asked], []) is overlaps
        hazards.add([], [span])
        spans.append(span)
