"""Listeners hear of their thread, or of all, and nobody of another one's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

import dl4all as dl
from dl4all.ops.core.kernels.launch_plan import logged
from dl4all.scheduler import listeners
from dl4all.scheduler.listeners import Listener
from tests.conftest import need


class Ops(Listener):
    """Notes the names of ops."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def op(self, op: Any, operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]) -> Any:
        self.names.append(op.name)
        return compute()


class Memory(Listener):
    """Counts allocations."""

    def __init__(self) -> None:
        self.count = 0

    def allocated(self, device: Any, storage: Any, tag: str) -> None:
        self.count += 1


class Replayed(Ops):
    replays: ClassVar[bool] = True


class Marking(Listener):
    """Doubles varying numbers."""

    def vary(self, name: str, numbers: Any, again: Any) -> Any:
        return [2 * number for number in numbers]


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    assert not listeners.active
    yield
    assert not listeners.active


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_listener_hears_of_its_thread_alone() -> None:
    x, heard, followed = dl.rand(3), Ops(), list[bool]()

    def elsewhere() -> None:
        followed.append(listeners.followed())
        x.exp()

    with listeners.listening(heard):
        x.relu()
        in_thread(elsewhere)
        assert listeners.followed()
    x.sin()
    assert (heard.names, followed) == (["relu"], [False])


def test_a_device_tells_the_thread_that_asks() -> None:
    heard = Memory()
    with listeners.listening(heard):
        in_thread(lambda: dl.empty(3, device="cpu"))
        assert heard.count == 0
        x = dl.empty(3, device="cpu")
    assert (heard.count, x.shape) == (1, (3,))


def test_a_listener_to_every_thread_hears_of_each() -> None:
    x, heard = dl.rand(3), Ops()
    listeners.listen(heard)
    listeners.listen(heard)  # once
    try:
        x.relu()
        in_thread(x.exp)
    finally:
        listeners.leave(heard)
    listeners.leave(heard)
    assert heard.names == ["relu", "exp"]


def test_listeners_listen_side_by_side_and_leave_in_any_order() -> None:
    x, first, second = dl.rand(3), Ops(), Ops()
    thread = threading.get_ident()
    listeners.listen(first, thread)
    with listeners.listening(second):
        x.relu()
        listeners.leave(first, thread)
        x.exp()
    assert (first.names, second.names) == (["relu"], ["relu", "exp"])


def test_an_error_ends_listening() -> None:
    with pytest.raises(KeyboardInterrupt), listeners.listening(Ops()):
        raise KeyboardInterrupt


def test_only_those_who_replay_are_suspended() -> None:
    x, replayed, heard = dl.rand(3), Replayed(), Ops()
    with listeners.listening(replayed), listeners.listening(heard):
        assert listeners.captured()
        with listeners.suspended():
            x.relu()
            assert listeners.followed()
            assert not listeners.captured()
        x.exp()
    assert (replayed.names, heard.names) == (["exp"], ["relu", "exp"])


def test_numbers_go_through_all_who_mark_them() -> None:
    with listeners.listening(Marking()), listeners.listening(Marking()):
        assert list(listeners.vary("count", [1, 2.5], lambda: [0, 0.0])) == [4, 10.0]
    assert list(listeners.vary("count", [1], lambda: [0])) == [1]


def test_a_call_that_another_takes_the_place_of_is_told_of_once() -> None:
    heard = Ops()
    x, y = dl.rand(3), dl.tensor(2.0, dtype=dl.float64)
    with listeners.listening(heard):
        x * y
    assert heard.names.count("mul") == 1


def test_changes_in_place_are_told_of() -> None:
    x, heard = dl.rand(3), Ops()
    with listeners.listening(heard):
        x.mul_(2.0)
    assert heard.names == ["mul"]


def test_a_forked_child_keeps_the_listeners_of_its_thread() -> None:
    inside, told = threading.Event(), threading.Event()

    def elsewhere() -> None:
        with listeners.listening(Ops()):
            inside.set()
            told.wait(60)

    other = threading.Thread(target=elsewhere)
    other.start()
    inside.wait(60)
    with listeners.listening(Ops()):
        child = os.fork()
        if not child:
            os._exit(0 if list(listeners.active) == [threading.get_ident()] else 1)
        _, status = os.waitpid(child, 0)
    told.set()
    other.join()
    assert not os.waitstatus_to_exitcode(status)


def test_two_threads_log_their_launches_at_once() -> None:
    need("vulkan:0")
    device = dl.device("vulkan:0")
    barrier, logs = threading.Barrier(2), dict[int, Any]()

    def work(number: int) -> None:
        x = dl.full((7, 5 + number), 1.0, device=device)

        def run() -> Any:
            barrier.wait(60)
            result = x.exp()
            barrier.wait(60)
            return result

        logs[number] = logged(device, run)[1]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [[type(event).__name__ for event in logs[number].events] for number in range(2)]
    assert kinds == [["Allocated", "Launched"]] * 2
    assert [logs[number].events[0].storage.nbytes for number in range(2)] == [4 * 7 * 5, 4 * 7 * 6]
    assert all(log.is_complete for log in logs.values())
