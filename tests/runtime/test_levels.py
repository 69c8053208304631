"""Levels against the longest chain, searched for pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from dl4all.runtime.levels import levels
from dl4all.runtime.protocols import Span

Access = tuple[list[Span], list[Span]]


def overlap(a: Span, b: Span) -> bool:
    return a.buffer == b.buffer and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def depends(later: Access, earlier: Access) -> bool:
    (reads, writes), (earlier_reads, earlier_writes) = later, earlier
    pairs = [(a, b) for a in (*reads, *writes) for b in earlier_writes]
    pairs += [(a, b) for a in writes for b in earlier_reads]
    return any(overlap(a, b) for a, b in pairs)


def random_accesses(random: np.random.Generator, count: int) -> list[Access]:
    def spans(most: int) -> list[Span]:
        found = []
        for _ in range(random.integers(most + 1)):
            begin, end = sorted(random.choice(12, 2, replace=False).tolist())
            found.append(Span(f"buffer {random.integers(2)}", 4 * begin, 4 * (end - begin)))
        return found

    return [(spans(3), spans(2)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(30))
def test_the_longest_chain_of_commands(seed: int) -> None:
    accesses = random_accesses(np.random.default_rng(seed), 40)
    expected: list[int] = []
    for i, later in enumerate(accesses):
        before = [expected[j] + 1 for j in range(i) if depends(later, accesses[j])]
        expected.append(max(before, default=0))
    assert levels(accesses) == expected
    assert max(expected) < 39


def test_a_command_that_reads_what_it_writes() -> None:
    x = Span("x", 0, 64)
    assert levels([([x], [x])] * 3) == [0, 1, 2]


def test_nothing() -> None:
    assert levels([]) == []
    assert levels([([], [])] * 2) == [0, 0]
