"""When a link is busy, for copies that threads of different virtual times ask for."""

from __future__ import annotations

KEPT = 256  # busy times; what was free before them is not looked at any more


class Timetable:
    """Busy times of something that does one thing at a time.

    Threads run in any order: one that is ahead may ask first. Each gets the first free time from its own time
    on, so that nobody waits for what comes later.

    >>> link = Timetable()
    >>> link.book(since=5.0, seconds=1.0), link.book(since=1.0, seconds=2.0), link.book(since=4.5, seconds=1)
    (6.0, 3.0, 7.0)
    """

    def __init__(self) -> None:
        self._busy: list[tuple[float, float]] = []  # in order
        self._closed = 0.0  # before that nothing is free

    def book(self, since: float, seconds: float) -> float:
        """Take so many seconds at a stretch; returns when they are over."""
        begin, place = max(since, self._closed), len(self._busy)
        for number, (start, stop) in enumerate(self._busy):
            if begin + seconds <= start:
                place = number
                break
            begin = max(begin, stop)
        self._busy.insert(place, (begin, begin + seconds))
        if len(self._busy) > KEPT:
            self._closed = self._busy.pop(0)[1]
        return begin + seconds
