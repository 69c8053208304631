"""The virtual clock of simulated devices.

Each thread has a time of its own. Whoever waits for another thread's work goes on at the time at which that
work was done, if that is later (Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System",
CACM 21:7). So all times follow from the program alone: how the system runs the threads makes no difference.
Where nothing is simulated, all times stay 0.
"""

from __future__ import annotations

import threading


class _Now(threading.local):
    seconds = 0.0


_now = _Now()


def now() -> float:
    """The virtual time of this thread in seconds."""
    return _now.seconds


def advance_to(seconds: float) -> None:
    """This thread has waited for something that was done at this time."""
    _now.seconds = max(_now.seconds, seconds)


def set_to(seconds: float) -> None:
    """Take up work of another time: a thread that serves others has none of its own."""
    _now.seconds = seconds
