"""The deadline of tests tells a process that waits for ever from one that is slow."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.support import deadline as module


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.2)
    monkeypatch.setattr(module, "MOST", 3)


def run(work: Callable[[], object]) -> None:
    """Do something under a deadline."""
    guard = module.deadline.__wrapped__()  # type: ignore[attr-defined]
    next(guard)
    try:
        work()
    finally:
        next(guard, None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def compute(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_waiting_for_ever_is_noticed() -> None:
    with pytest.raises(TimeoutError, match="the test took more than"):
        run(lambda: threading.Event().wait(60.0))


def test_computing_goes_on_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 1.0)
    monkeypatch.setattr(module, "MOST", 1000)  # however little of the machine this process gets
    run(lambda: compute(1.5))


def test_computing_for_ever_is_noticed() -> None:
    with pytest.raises(TimeoutError, match="the test took more than"):
        run(lambda: compute(60.0))
