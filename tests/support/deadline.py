"""A test that waits for a thread for ever fails instead."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 60.0  # many times what such a test takes
SHOWN = 3  # lines of each thread


@pytest.fixture
def deadline() -> Iterator[None]:
    """Raise TimeoutError in the main thread when a test takes much too long; locks let it through.

    It says where the other threads wait.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        stacks = [
            f"{names.get(ident)}:\n{''.join(traceback.format_stack(at)[-SHOWN:])}"
            for ident, at in sys._current_frames().items()
            if ident != threading.get_ident()
        ]
        raise TimeoutError("\n".join([f"the test took more than {SECONDS} seconds", *stacks]))

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
