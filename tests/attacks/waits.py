"""Waits that are left by Ctrl-C before what they wait for is done."""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import dl4all as dl

BEGINS = 0.1  # seconds after which the interrupt comes
PATIENCE = 30.0  # seconds after which work that is not released ends all the same
SIZE = 768  # of matrices whose products keep a device busy

Wait = Callable[[str, float], float]
"""Interrupts a wait on a device for work of so many seconds; returns after how many more it was left.

Raises:
    AssertionError: it was left when the work was done, or something does not go on afterwards.
"""


def leave(wait: Callable[[], Any]) -> float:
    """Interrupt a wait; returns the seconds from the interrupt until it was left.

    Raises:
        AssertionError: it came to its end.
    """
    main, sent = threading.get_ident(), [0.0]

    def interrupt() -> None:
        sent[0] = time.perf_counter()
        signal.pthread_kill(main, signal.SIGINT)

    timer = threading.Timer(BEGINS, interrupt)
    timer.start()
    try:
        wait()
        timer.join()
        time.sleep(0)
    except KeyboardInterrupt:
        left = time.perf_counter() - sent[0]
        timer.join()
        return left
    raise AssertionError("the wait came to its end, or no interrupt came")


def for_the_device(device: str, seconds: float) -> float:
    """``synchronize`` behind many products."""
    x = dl.rand(SIZE, SIZE, device=device) / SIZE
    (x @ x).numpy()  # the kernel is built
    start = time.perf_counter()
    (x @ x).numpy()
    count = 2 + round(seconds / (time.perf_counter() - start))

    def work() -> None:
        y = x
        for _ in range(count):
            y = x @ y
        dl.synchronize(device)

    left = leave(work)
    dl.synchronize(device)
    return left


def _blocked(wait_for: Callable[[Any, Any, dl.Stream], Any], device: str, seconds: float) -> float:
    """A wait for a stream whose task waits until it is let go."""
    go, stream = threading.Event(), dl.Stream(device)
    task = stream.submit(go.wait, PATIENCE)
    event = stream.record_event()
    try:
        left = leave(lambda: wait_for(task, event, stream))
        assert not task.done()
    finally:
        go.set()
    assert task.result() is True
    assert stream.submit(lambda: dl.ones(3, device=device).sum().item()).result() == 3.0
    stream.close()
    stream.join()
    return left


def _full(task: Any, event: Any, stream: dl.Stream) -> None:
    while True:
        stream.submit(int)


WAITS: dict[str, Wait] = {
    "device": for_the_device,
    "task": functools.partial(_blocked, lambda task, event, stream: task.result()),
    "event": functools.partial(_blocked, lambda task, event, stream: event.synchronize()),
    "stream": functools.partial(_blocked, lambda task, event, stream: stream.synchronize()),
    "room": functools.partial(_blocked, _full),
}
