"""Threads that start, and wait for each other, whatever exception a signal handler raises meanwhile.

CPython delivers signals to the main thread where a function is entered, after a call and where a loop goes
back. ``threading.Condition`` takes its lock in a Python function: an exception there leaves it taken for
ever, and every thread that asks for it waits for ever. ``Event``, ``queue.Queue`` and ``Thread.start`` are
made of conditions. Here a lock is only ever taken by ``with``, which cannot be interrupted between the lock
and the block, and nobody waits in such a block.
"""

from __future__ import annotations

import _thread
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable

AGAIN = 1.0
"""Seconds after which whoever waits looks again: a thread that was to wake it may have been interrupted."""
STARTS = 0.001  # seconds between two looks at a thread that starts


class Condition:
    """A lock, and threads that wait for what changes under it.

    >>> condition, given = Condition(), [1]
    >>> condition.wait_for(lambda: bool(given and given.pop()), timeout=10)
    True
    >>> condition.wait_for(lambda: bool(given), timeout=0.0)
    False
    """

    __slots__ = ("_waiting", "lock")

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self.lock = threading.RLock() if lock is None else lock
        self._waiting: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """The number of threads that wait."""
        return len(self._waiting)

    def wait_for(self, attempt: Callable[[], bool], timeout: float | None = None) -> bool:
        """Call a function with the lock held, now and after each change, until it returns true.

        So what it does and the condition on which it does it go together. The caller does not hold the lock.

        Returns:
            Whether it has, within `timeout` seconds.
        """
        until = math.inf if timeout is None else time.perf_counter() + timeout
        while True:
            with self.lock:
                if attempt():
                    return True
                own = threading.Lock()
                own.acquire()
                self._waiting.append(own)
            try:
                left = until - time.perf_counter()
                if left > 0:
                    own.acquire(timeout=min(left, AGAIN))
            finally:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(own)
            if left <= 0:
                return False

    def notify_all(self) -> None:
        """Let all who wait look again. The caller holds the lock."""
        waiting = self._waiting
        while waiting:
            with contextlib.suppress(IndexError, RuntimeError):  # one gave up, or was woken before
                waiting[0].release()
            with contextlib.suppress(IndexError):
                waiting.popleft()


begin = _thread.start_new_thread
"""Runs a function in a new thread. As it is written in C, ``[number] = map(begin, [start], [(thread,)])``
starts a thread and notes that in one statement."""


def start(thread: threading.Thread) -> None:
    """Start a thread, for :data:`begin`: ``Thread.start`` waits for it, which the main thread must not."""
    try:
        thread.start()
    except RuntimeError:  # the system has no other thread for it: this one does its work
        thread.run()


def ended(thread: threading.Thread, timeout: float | None = None) -> bool:
    """Wait for the end of a thread that :func:`start` starts, now or soon; returns whether it has come."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = until - time.monotonic()
        try:
            thread.join(None if timeout is None else max(0.0, left))
        except RuntimeError:  # it has not started yet, or is this one
            if left <= 0 or thread is threading.current_thread():
                return False
            time.sleep(STARTS)
        else:
            return not thread.is_alive()
