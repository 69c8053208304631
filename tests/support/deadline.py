"""A test that waits for a thread for ever fails instead."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 60.0  # many times what such a test takes
WORKING = 0.01  # the share of that time which a process that waits for ever does not compute
MOST = 10  # times SECONDS, for one that computes for ever
SHOWN = 3  # lines of each thread


@pytest.fixture
def deadline() -> Iterator[None]:
    """Raise TimeoutError in the main thread when a test takes much too long; locks let it through.

    It says where the other threads wait. A process that computes is not one that waits for ever: on a
    machine with much else to do it may take many times as long as on another.
    """
    used = time.process_time()
    times = itertools.count(1)

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal used
        before, used = used, time.process_time()
        if used - before > WORKING * SECONDS and next(times) < MOST:
            return
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"{names.get(ident)}:\n{''.join(traceback.format_stack(at)[-SHOWN:])}"
            for ident, at in sys._current_frames().items()
            if ident != threading.get_ident()
        ]
        raise TimeoutError("\n".join([f"the test took more than {SECONDS} seconds", *stacks]))

    previous = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)
