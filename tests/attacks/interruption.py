"""Real interrupts: signals of a timer, Ctrl-C from a thread, and exceptions that a thread sends."""

from __future__ import annotations

import ctypes
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EARLIEST = 1e-5  # seconds, as a timer of 0 never fires
AGAIN = 0.05  # seconds after which one that was lost is sent once more


class Interrupted(Exception):
    """What the handler of a signal of the program raises: no KeyboardInterrupt, but an ordinary exception."""


ERRORS = (KeyboardInterrupt, Interrupted)

Send = Callable[[float], None]
"""Interrupts this thread after so many seconds."""


@contextmanager
def timer(error: type[BaseException]) -> Iterator[tuple[Send, Callable[[], None]]]:
    """Interrupt by SIGALRM, whose handler raises."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise error("timer")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield (
            lambda delay: _set(max(delay, EARLIEST)),
            lambda: _set(0.0),
        )
    finally:
        signal.signal(signal.SIGALRM, before)


def _set(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds)


@contextmanager
def thread(hit: Callable[[], Any]) -> Iterator[tuple[Send, Callable[[], None]]]:
    """Interrupt by a thread that calls `hit`."""
    delays: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    done = threading.Semaphore(0)
    waiting = [0]

    def work() -> None:
        while (delay := delays.get()) is not None:
            time.sleep(delay)
            hit()
            done.release()

    def send(delay: float) -> None:
        waiting[0] += 1
        delays.put(delay)

    def end() -> None:
        while waiting[0]:
            if done.acquire(timeout=AGAIN):
                waiting[0] -= 1

    worker = threading.Thread(target=work, name="interrupts", daemon=True)
    worker.start()
    try:
        yield send, end
    finally:
        delays.put(None)
        worker.join()


def control_c() -> Any:
    """Interrupt as the keyboard does: SIGINT to the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    return thread(lambda: signal.pthread_kill(main, signal.SIGINT))


def asynchronous(error: type[BaseException]) -> Any:
    """Interrupt as debuggers and notebooks do, by an exception that is set in the thread's state."""
    main = threading.main_thread().ident
    assert main is not None
    return thread(
        lambda: ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(error))
    )


def attempt(run: Callable[[], Any], delay: float, send: Send, end: Callable[[], None]) -> str:
    """Run a function and interrupt it after `delay` seconds; returns what came of it.

    When it returns, nothing is on its way any more.
    """
    outcome = "finished"
    try:
        send(delay)
        run()
    except ERRORS:
        outcome = "interrupted"
    except BaseException as other:  # noqa: BLE001  # whatever it is, it is a finding
        outcome = f"became {type(other).__name__}: {other}"
    while True:
        try:
            end()
            time.sleep(0)  # where what has come meanwhile is raised
            return outcome
        except ERRORS:
            continue
