"""What forked children are told, without forking; tests/attacks/test_fork.py forks."""

from __future__ import annotations

import threading
import time
import weakref

import pytest

from dl4all.errors import ForkError
from dl4all.runtime import fork


def held_elsewhere(lock: threading.Lock | threading.RLock) -> None:
    """Have a thread take a lock and end, as if it had not been copied."""
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process in which only this test's callbacks and locks know of a fork."""
    monkeypatch.setattr(fork, "_in_child", [])
    monkeypatch.setattr(fork, "_locks", weakref.WeakSet())
    monkeypatch.setattr(fork, "generation", 3)
    monkeypatch.setattr(fork, "refused", False)
    monkeypatch.setattr(fork, "_used", False)
    return monkeypatch


def test_locks_that_other_threads_held_are_free(child: pytest.MonkeyPatch) -> None:
    plain, entered = fork.lock(), fork.rlock()
    for lock in (plain, entered):
        held_elsewhere(lock)
        assert not lock.acquire(blocking=False)
    fork._begin_child()
    for lock in (plain, entered):
        assert lock.acquire(blocking=False)


def test_a_lock_that_the_forking_thread_holds_stays_its_own(child: pytest.MonkeyPatch) -> None:
    lock = fork.rlock()
    with lock:
        fork._begin_child()
        assert lock._is_owned()  # type: ignore[attr-defined]
    assert not lock._is_owned()  # type: ignore[attr-defined]


def test_made_locks_are_known_as_long_as_they_live() -> None:
    before = len(fork._locks)
    made = [fork.lock(), fork.rlock()]
    assert len(fork._locks) == before + 2
    made.clear()
    assert len(fork._locks) == before


def test_only_children_of_processes_that_opened_a_driver_are_refused(child: pytest.MonkeyPatch) -> None:
    fork._begin_child()
    fork.check("vulkan:0")
    fork.open_driver("vulkan:0")
    fork.check("vulkan:0")
    fork._begin_child()
    for refused in (fork.check, fork.open_driver):
        with pytest.raises(ForkError, match=r'^\[vulkan:0\] .*"spawn"'):
            refused("vulkan:0")
    assert fork.generation == 5


def test_children_of_refused_children_are_refused(child: pytest.MonkeyPatch) -> None:
    child.setattr(fork, "_used", True)
    fork._begin_child()
    child.setattr(fork, "_used", False)
    fork._begin_child()
    with pytest.raises(ForkError):
        fork.check("vulkan:0")


def test_what_needs_threads_is_of_one_process(child: pytest.MonkeyPatch) -> None:
    made_in = fork.generation
    fork.check_own(made_in, "Task")
    fork._begin_child()
    with pytest.raises(ForkError, match=r"^\[Task\] "):
        fork.check_own(made_in, "Task")


def test_callbacks_come_in_order_after_the_locks(child: pytest.MonkeyPatch) -> None:
    lock, called = fork.lock(), list[object]()
    held_elsewhere(lock)
    fork.in_child(lambda: called.append(lock.locked()))
    fork.in_child(lambda: called.append("second"))
    fork._begin_child()
    assert called == [False, "second"]


def test_a_refusal_refuses_whatever_is_asked() -> None:
    stands_in = fork.Refusal("vulkan:0")
    with pytest.raises(ForkError, match=r"^\[vulkan:0\]"):
        stands_in.allocate(4)
    with pytest.raises(ForkError, match=r"^\[vulkan:0\]"):
        stands_in.device_busy = True


def test_what_is_kept_for_ever_is_not_destroyed() -> None:
    gone = []

    class Manager:
        def __del__(self) -> None:
            gone.append(self.name)

        def __init__(self, name: str) -> None:
            self.name = name

    kept, other = Manager("kept"), Manager("other")
    fork.keep_for_ever(kept)
    del kept, other
    assert gone == ["other"]


def test_nobody_else_holds_the_excluding_lock_in_a_child() -> None:
    begun, ended = threading.Event(), list[bool]()

    def work() -> None:
        with fork.excluded:
            begun.set()
            time.sleep(0.2)
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    fork._prepare()
    try:
        assert ended == [True]
    finally:
        fork._go_on()
    thread.join()
