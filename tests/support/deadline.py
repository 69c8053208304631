"""A test that waits for a thread for ever fails instead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

SECONDS = 60.0  # many times what such a test takes


@pytest.fixture
def deadline() -> Iterator[None]:
    """Raise TimeoutError in the main thread when a test takes much too long; locks let it through."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
