"""Times of what is compared, taken in turn in one run, so that all meet the same load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

PAUSE = 0.04  # seconds between two turns: the waiting threads of an OpenMP or BLAS pool spin for about 30 ms
CALLS = 10  # at most in a turn


class Times(NamedTuple):
    """Milliseconds of a call in each turn."""

    clock: list[float]
    processor: list[float]
    """Of all threads of this process."""


def in_turn(
    calls: dict[str, Callable[[], Any]], repeat: int, *, warm_up: int, least: float = 0.0
) -> dict[str, Times]:
    """Measure each call.

    Each round begins with another one, after a pause: whoever comes behind threads that spin for a while
    would take longer.

    Args:
        calls: by name; the first one is the reference.
        repeat: how many rounds.
        warm_up: calls before, which compile kernels, fill pools and are traced.
        least: milliseconds that a turn takes at least, if ten calls take that; their mean counts.
    """
    for _ in range(warm_up):
        for call in calls.values():
            call()
    order = list(calls)
    start = time.perf_counter()
    calls[order[0]]()
    count = max(1, min(CALLS, round(1e-3 * least / (time.perf_counter() - start))))
    times = {name: Times([], []) for name in calls}
    for _ in range(repeat):
        for name in order:
            call = calls[name]
            time.sleep(PAUSE)
            clock, processor = time.perf_counter(), time.process_time()
            for _ in range(count):
                call()
            times[name].processor.append(1e3 * (time.process_time() - processor) / count)
            times[name].clock.append(1e3 * (time.perf_counter() - clock) / count)
        order.append(order.pop(0))
    return times
