"""The shares of a profile's time that devices computed, copied and waited."""

from __future__ import annotations

from typing import Any

import pytest

from dl4all.runtime.profiler.recorder import Kind, RecordedEvent
from dl4all.runtime.profiler.utilisation import covered, utilisation


def event(kind: Kind, start: float, end: float, device: str = "cpu", **facts: Any) -> RecordedEvent:
    return RecordedEvent(kind, kind, device, 1, start, end, **facts)


def test_overlapping_times_count_once() -> None:
    events = [event("kernel", 0.0, 2.0), event("kernel", 1.0, 3.0), event("kernel", 6.0, 7.0)]
    use = utilisation(events, 8.0)["cpu"]
    assert (use.busy, use.transfers, use.waiting, use.kernels, use.seconds) == (0.5, 0.0, 0.0, 3, 8.0)


def test_transfers_and_waits_of_streams() -> None:
    events = [
        event("upload", 0.0, 1.0),
        event("download", 0.5, 2.0),
        event("wait", 0.0, 3.0, stream="s"),
        event("wait", 3.0, 4.0),  # the host
        event("op", 0.0, 4.0),
        event("allocation", 1.0, 1.0, "vulkan:0"),
    ]
    found = utilisation(events, 4.0)
    assert found.keys() == {"cpu"}
    assert (found["cpu"].busy, found["cpu"].transfers, found["cpu"].waiting) == (0.0, 0.5, 0.75)


def test_each_device_on_its_own_clock() -> None:
    events = [
        event("kernel", 0.0, 1.0),
        event("kernel", 0.0, 1.0, "simulated:0", clock="virtual"),
        event("task", 0.0, 2.0, "vulkan:0", stream="s"),
    ]
    found = utilisation(events, 4.0, 2.0)
    assert [(name, use.busy, use.seconds, use.virtual) for name, use in found.items()] == [
        ("cpu", 0.25, 4.0, False),
        ("simulated:0", 0.5, 2.0, True),
        ("vulkan:0", 0.0, 4.0, False),
    ]


def test_kernels_that_nobody_timed_are_counted() -> None:
    use = utilisation([event("kernel", 1.0, 1.0, clock="none")], 0.0)["cpu"]
    assert (use.busy, use.kernels) == (0.0, 1)


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0.0),
        ([(1.0, 3.0), (0.0, 4.0)], 4.0),
        ([(2.0, 3.0), (0.0, 1.0)], 2.0),
        ([(0.0, 1.0), (1.0, 2.0)], 2.0),
        ([(-2.0, -1.0), (-1.5, 0.0)], 2.0),
    ],
)
def test_what_intervals_cover(intervals: list[tuple[float, float]], seconds: float) -> None:
    assert covered(intervals) == seconds
