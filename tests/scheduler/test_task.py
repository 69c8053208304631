"""Tasks by themselves: who takes them, who waits for them, and what they hold."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from dl4all.errors import CancelledError, DeviceError
from dl4all.runtime.simulated import clock
from dl4all.scheduler.streams.task import Task

pytestmark = pytest.mark.usefixtures("deadline")


def a_task(*, on_virtual_clock: bool = False) -> Task:
    return Task(lambda: 42, "answer", on_virtual_clock=on_virtual_clock)


def run(task: Task) -> None:
    work = task.begin()
    assert work is not None
    task.end("finished", work())


def test_a_task_goes_through_its_states() -> None:
    task = a_task()
    assert (task.state, task.done(), task.wait(0.0)) == ("waiting", False, False)
    assert repr(task) == "<task answer waiting>"
    work = task.begin()
    assert work is not None
    assert task.state == "running"
    assert not task.done()
    task.end("finished", work())
    assert (task.state, task.done(), task.result()) == ("finished", True, 42)
    assert task.submitted <= task.begun <= task.ended


def test_a_task_is_taken_once() -> None:
    for _ in range(200):
        task = a_task()
        barrier = threading.Barrier(3)

        def begin(task: Task = task, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return task.begin() is not None

        def cancel(task: Task = task, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return task.cancel()

        with ThreadPoolExecutor(3) as pool:
            got = [pool.submit(f) for f in (begin, begin, cancel)]
            assert sum(f.result() for f in got) == 1
        assert task.state in ("running", "cancelled")


def test_a_cancelled_task_never_runs_and_says_so() -> None:
    task = a_task()
    assert task.cancel()
    assert task.cancel()
    assert task.begin() is None
    assert task.done()
    with pytest.raises(CancelledError, match=r"\[Task\] answer was cancelled"):
        task.result()


def test_a_task_that_runs_or_has_run_is_not_cancelled() -> None:
    task = a_task()
    work = task.begin()
    assert not task.cancel()
    task.end("finished", work)
    assert not task.cancel()
    assert task.state == "finished"


def test_all_who_wait_are_woken() -> None:
    task = a_task()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(task.result, None if i % 2 else 30.0) for i in range(8)]
        while len(task._waiters) < 8:
            threading.Event().wait(0.001)
        run(task)
        assert [each.result() for each in waiting] == [42] * 8
    assert not task._waiters


def test_who_gives_up_leaves_nothing_behind() -> None:
    task = a_task()
    assert not task.wait(0.001)
    assert not task._waiters
    with pytest.raises(DeviceError, match=r"\[Task\] answer was not done within 0.001 seconds"):
        task.result(0.001)
    assert not task.wait(-1.0)
    run(task)
    assert task.wait(float("inf"))


def test_the_function_and_what_it_holds_go_when_the_task_is_done() -> None:
    class Large:
        pass

    held = Large()
    seen = weakref.ref(held)
    finished, cancelled = (Task(lambda kept=held: None) for _ in range(2))  # type: ignore[misc]
    del held
    work = finished.begin()
    assert work is not None
    finished.end("finished", work())
    del work
    assert seen() is not None  # the other one has it still
    cancelled.cancel()
    assert seen() is None


def test_an_error_keeps_no_frames_of_those_who_asked() -> None:
    task = a_task()
    task.begin()
    try:
        raise KeyError("why")
    except KeyError as error:
        task.end("failed", error)
    depths = set()
    for _ in range(3):
        with pytest.raises(KeyError) as caught:
            task.result()
        depths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(depths) == 1


def test_asking_for_an_error_makes_no_cycle() -> None:
    """Or each failed task would stay, with all that it holds, until the garbage collector comes."""
    task = a_task()
    task.begin()
    task.end("failed", KeyError("why"))
    before = sys.getrefcount(task)
    with contextlib.suppress(KeyError):
        task.result()
    assert sys.getrefcount(task) == before


def test_errors_that_are_no_exceptions_are_raised_too() -> None:
    task = a_task()
    task.begin()
    task.end("failed", SystemExit(3))
    with pytest.raises(SystemExit):
        task.result()


# On the virtual clock


def test_who_waits_goes_on_when_the_task_has_ended() -> None:
    task = a_task(on_virtual_clock=True)
    clock.set_to(3.0)
    run(task)
    clock.set_to(1.0)
    assert task.result() == 42
    assert clock.now() == 3.0
    clock.set_to(5.0)
    assert task.wait()
    assert clock.now() == 5.0  # time does not run backwards


@pytest.mark.parametrize(("timeout", "came", "then"), [(1.5, False, 2.5), (2.0, True, 3.0), (9.0, True, 3.0)])
def test_a_virtual_timeout_goes_by_the_time_of_the_outcome(timeout: float, came: bool, then: float) -> None:
    task = a_task(on_virtual_clock=True)
    clock.set_to(3.0)
    run(task)
    clock.set_to(1.0)
    assert task.wait(timeout) == came
    assert clock.now() == then
    assert task.done()


def test_a_hung_task_ends_no_real_wait_and_every_virtual_one() -> None:
    for virtual in (False, True):
        clock.set_to(2.0)
        task = a_task(on_virtual_clock=virtual)
        task.begin()
        task.end("hung", None)
        assert not task.wait(0.25)
        assert not task.done()
        assert not task.settle()
        assert clock.now() == (2.25 if virtual else 2.0)


def test_a_wait_for_a_task_that_hangs_later_lasts_its_time() -> None:
    task = a_task()
    task.begin()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(task.wait, 0.2)
        while not task._waiters:
            threading.Event().wait(0.001)
        task.end("hung", None)
        assert waiting.result() is False


def test_real_tasks_carry_virtual_time_along() -> None:
    """A task of a real device may have used simulated ones."""
    task = a_task()
    clock.set_to(7.0)
    run(task)
    clock.set_to(0.0)
    task.wait()
    assert clock.now() == 7.0
