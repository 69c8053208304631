"""Conditions, and how threads start, however they are interrupted."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dl4all.runtime import threads
from dl4all.runtime.threads import Condition

pytestmark = pytest.mark.usefixtures("deadline")
SECONDS = 30.0


def in_a_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def test_what_is_waited_for_is_done_with_the_lock() -> None:
    condition, given = Condition(), list[int]()
    waiting = [in_a_thread(lambda: condition.wait_for(lambda: bool(given and given.pop()))) for _ in range(3)]
    until(lambda: condition.waiting == 3)
    for number in (1, 2, 3):
        with condition.lock:
            given.append(number)
            condition.notify_all()
    for thread, results in waiting:
        thread.join(SECONDS)
        assert results == [True]
    assert not given
    assert not condition.waiting


def test_a_timeout_leaves_nobody_behind() -> None:
    condition, asked = Condition(), list[int]()

    def attempt() -> bool:
        asked.append(1)
        return False

    assert not condition.wait_for(attempt, timeout=0.01)
    assert len(asked) == 2  # at once, and at the end
    assert not condition.waiting


def test_a_change_that_nobody_was_told_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that made it was interrupted before it told."""
    monkeypatch.setattr(threads, "AGAIN", 0.01)
    condition, given = Condition(), list[int]()
    thread, results = in_a_thread(lambda: condition.wait_for(lambda: bool(given)))
    until(lambda: condition.waiting == 1)
    given.append(1)
    thread.join(SECONDS)
    assert results == [True]


def test_an_exception_while_it_is_looked_at_frees_the_lock() -> None:
    condition = Condition()

    def attempt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        condition.wait_for(attempt)
    thread, results = in_a_thread(lambda: condition.wait_for(lambda: True, timeout=SECONDS))
    thread.join(SECONDS)
    assert results == [True]


def test_telling_goes_on_where_it_was_cut_short() -> None:
    """Who was woken is still in the list then."""
    condition, given = Condition(), list[int]()
    thread, results = in_a_thread(lambda: condition.wait_for(lambda: bool(given)))
    until(lambda: condition.waiting == 1)
    with condition.lock:
        given.append(1)
        condition._waiting[0].release()
        condition.notify_all()
    thread.join(SECONDS)
    assert results == [True]


def test_a_thread_is_started_and_noted_at_once() -> None:
    done = threading.Lock()
    done.acquire()
    thread = threading.Thread(target=done.release, daemon=True)
    assert not threads.ended(thread, 0.0)  # it has not begun
    [number] = map(threads.begin, [threads.start], [(thread,)])
    assert number
    assert done.acquire(timeout=SECONDS)
    assert threads.ended(thread, SECONDS)


def test_nobody_waits_for_itself() -> None:
    assert not threads.ended(threading.current_thread(), SECONDS)


def test_work_is_done_without_another_thread() -> None:
    """Where the system gives none, the one that was to start it does it."""
    seen = list[int]()
    thread = threading.Thread(target=lambda: seen.append(threading.get_ident()))

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    thread.start = refuse  # type: ignore[method-assign]
    threads.start(thread)
    assert seen == [_thread.get_ident()]
