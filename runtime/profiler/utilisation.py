"""The parts of a profile's time in which each device computed, moved data and waited."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dl4all.runtime.profiler.recorder import RecordedEvent

Interval = tuple[float, float]


@dataclass(frozen=True)
class Utilisation:
    """The work of a device in a profile. Shares are between 0 and 1, and may overlap each other.

    Kernels that nobody timed count in ``kernels``, but not in ``busy``.
    """

    device: str
    busy: float  # share of the time in which at least one kernel ran
    transfers: float  # share in which something was copied from the host or to it
    waiting: float  # share in which a stream of the device waited for an event or another device
    kernels: int
    seconds: float  # of the profile, on the device's clock
    virtual: bool = False  # that clock is the virtual one of simulated devices


def utilisation(
    events: Iterable[RecordedEvent], seconds: float, virtual_seconds: float = 0.0
) -> dict[str, Utilisation]:
    """That of each device that took part, in a profile that took so many seconds on each clock.

    >>> first = RecordedEvent("kernel", "a", "cpu", 1, 0.0, 2.0)
    >>> second = RecordedEvent("kernel", "b", "cpu", 2, 1.0, 3.0)
    >>> utilisation([first, second], 4.0)["cpu"].busy
    0.75
    """
    found: dict[str, list[RecordedEvent]] = {}
    for event in events:
        if event.kind in ("kernel", "upload", "download", "task") or (event.kind == "wait" and event.stream):
            found.setdefault(event.device, []).append(event)
    result = {}
    for device, own in found.items():
        virtual = any(event.clock == "virtual" for event in own)
        span = virtual_seconds if virtual else seconds
        kernels = [event for event in own if event.kind == "kernel"]
        moved = [event for event in own if event.kind in ("upload", "download")]
        waits = [event for event in own if event.kind == "wait"]
        busy, transfers, waiting = (_share(part, span, virtual) for part in (kernels, moved, waits))
        result[device] = Utilisation(device, busy, transfers, waiting, len(kernels), span, virtual)
    return result


def _share(events: list[RecordedEvent], seconds: float, virtual: bool) -> float:
    """The part of the time that is covered by events on one clock."""
    intervals = [(event.start, event.end) for event in events if (event.clock == "virtual") == virtual]
    return covered(intervals) / seconds if seconds > 0 else 0.0


def covered(intervals: Iterable[Interval]) -> float:
    """Seconds that lie in at least one interval.

    >>> covered([(0.0, 2.0), (5.0, 6.0), (1.0, 3.0)])
    4.0
    """
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        if end > until:
            total += end - max(start, until)
            until = end
    return total


def lines(found: dict[str, Utilisation]) -> list[str]:
    """One for each device, for people."""
    return [
        f"{use.device}: busy {use.busy:.1%}, transfers {use.transfers:.1%}, waiting {use.waiting:.1%} of "
        f"{use.seconds * 1e3:.2f} ms{' of virtual time' if use.virtual else ''}; {use.kernels} kernels."
        for use in found.values()
    ]
