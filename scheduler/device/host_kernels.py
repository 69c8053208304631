"""No process is forked in the middle of a NumPy body.

A child is a copy of one thread. What another one has begun is cut off there: an array half written, a lock of
NumPy's BLAS taken for good. OpenBLAS moreover joins its own threads before a fork, and hangs with the whole
process if one of them works for somebody. So bodies that run are waited for, and those that are to begin
wait, by counters of another class: while nobody forks this costs nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from dl4all.scheduler.monitor.counters import Counters, devices

SECONDS = 1.0  # that a fork waits for what runs, at most; then it takes its chance
PAUSE = 2e-4

_count: Any = vars(Counters)["host_kernels"]  # the slot itself


class _HeldCounters(Counters):
    """The counters of a device while a thread forks."""

    __slots__ = ()

    def _get(self) -> int:
        if threading.get_ident() not in _forking:
            _done.wait(2 * SECONDS)
        return int(_count.__get__(self))

    def _set(self, value: int) -> None:
        _count.__set__(self, value)

    host_kernels = property(_get, _set)


_done = threading.Event()
_forking: list[int] = []  # threads


def _runs(counters: Counters) -> bool:
    return int(_count.__get__(counters)) != counters.host_finished


def hold() -> None:
    """Before a fork: wait for the bodies that run, and let no other one begin."""
    _forking.append(threading.get_ident())
    if threading.active_count() == 1:  # nobody else computes
        return
    _done.clear()
    counters = [device.counters for device in list(devices)]
    for one in counters:
        one.__class__ = _HeldCounters
    until = time.monotonic() + SECONDS
    while True:
        time.sleep(PAUSE)  # at least once: a thread may be about to begin
        if time.monotonic() > until or not any(map(_runs, counters)):
            return


def release() -> None:
    """After a fork, in the parent."""
    _forking.remove(threading.get_ident())
    if not _forking:  # or another thread forks, too
        _let_go()


def _let_go() -> None:
    for device in list(devices):
        device.counters.__class__ = Counters
    _done.set()


def forget() -> None:
    """After a fork, in the child: nothing of what other threads had begun goes on there."""
    global _done
    _forking.clear()
    _done = threading.Event()
    _let_go()
    for device in list(devices):
        device.counters.host_finished = device.counters.host_kernels
