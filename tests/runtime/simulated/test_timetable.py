"""Busy times of links, whatever the order in which threads ask."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dl4all.runtime.simulated.timetable import KEPT, Timetable


def test_one_after_the_other() -> None:
    link = Timetable()
    assert [link.book(0.0, 2.0), link.book(1.0, 3.0), link.book(7.0, 1.0)] == [2.0, 5.0, 8.0]


def test_what_comes_later_holds_up_nobody() -> None:
    link = Timetable()
    link.book(10.0, 1.0)
    assert link.book(0.0, 4.0) == 4.0
    assert link.book(3.0, 6.0) == 10.0  # all that is free in between
    assert link.book(3.0, 0.5) == 11.5


def test_times_never_overlap() -> None:
    rng = np.random.default_rng(0)
    wishes = [(float(since), float(seconds)) for since, seconds in rng.uniform(0.1, 1.0, (60, 2)) * (40, 1)]
    for order in (wishes, wishes[::-1], sorted(wishes)):
        link = Timetable()
        ends = [link.book(*wish) for wish in order]
        spans = sorted((end - seconds, end) for end, (_, seconds) in zip(ends, order, strict=True))
        assert all(second[0] >= first[1] - 1e-9 for first, second in pairwise(spans))
        assert all(e >= since + seconds for e, (since, seconds) in zip(ends, order, strict=True))


def test_only_the_last_times_are_kept() -> None:
    link = Timetable()
    for number in range(KEPT + 2):
        link.book(2.0 * number, 1.0)
    assert link.book(0.0, 1.0) == 4.0  # the first two are forgotten, with the time before them
    assert link.book(0.0, 1.0) == 6.0
