"""Streams: order, priorities, room, errors, and how their threads end."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, CancelledError, DeviceError, DeviceLostError, ShapeError
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.description import Failure
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.streams.stream import Stream
from tests.conftest import need, run_python

pytestmark = pytest.mark.usefixtures("deadline")


class Gate:
    """A task that runs until it is let go."""

    def __init__(self, stream: Stream) -> None:
        self.opened, self.reached = threading.Event(), threading.Event()
        self.task = stream.submit(self.wait, name="gate")
        assert self.reached.wait(30)

    def wait(self) -> str:
        self.reached.set()
        assert self.opened.wait(30)
        return "opened"

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.set()


def ended(thread: threading.Thread | None) -> bool:
    """Whether a thread has ended, or does soon."""
    assert thread is not None
    thread.join(30)
    return not thread.is_alive()


# Order


def test_tasks_run_in_the_order_of_their_submission(device: str) -> None:
    stream = Stream(device)
    order: list[int] = []
    tasks = [stream.submit(order.append, i) for i in range(300)]
    sums = [stream.submit(lambda i=i: dl.full((3,), float(i)).sum()) for i in range(20)]
    assert [s.result().item() for s in sums] == [3.0 * i for i in range(20)]
    assert order == list(range(300))
    assert all(a.ended <= b.begun for a, b in itertools.pairwise(tasks))
    assert all(s.result().device == dl.device(device) for s in sums)  # which "auto" means there


def test_higher_priorities_go_first() -> None:
    stream = Stream("cpu")
    order: list[str] = []
    with Gate(stream):
        for name, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 5), ("e", 0)):
            stream.submit(order.append, name, priority=priority)
    stream.synchronize(30)
    assert order == ["b", "d", "a", "e", "c"]


def test_no_priority_moves_a_task_across_an_event() -> None:
    stream, other = Stream("cpu"), Stream("cpu#1")
    order: list[str] = []
    with Gate(stream), Gate(other) as elsewhere:
        stream.submit(order.append, "low", priority=-1)
        event = stream.record_event()
        stream.submit(order.append, "after", priority=1)
        stream.wait_event(other.record_event())
        stream.submit(order.append, "late", priority=9)
        other.submit(order.append, "never before")
        assert not event.query()
        threading.Timer(0.05, elsewhere.opened.set).start()
    stream.synchronize(30)
    order.remove("never before")
    assert order == ["low", "after", "late"]


def test_threads_that_submit_keep_their_own_order() -> None:
    stream = Stream("cpu", limit=16)
    order: list[tuple[int, int]] = []

    def submit(caller: int) -> None:
        for i in range(200):
            stream.submit(order.append, (caller, i))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(submit, range(6)))
    stream.synchronize(30)
    assert len(order) == 1200
    for caller in range(6):
        assert [i for c, i in order if c == caller] == list(range(200))
    assert stream.finished == 1200 + 1


def test_options_and_names_go_through() -> None:
    stream = Stream("cpu", name="mine")
    task = stream.submit(dl.full, (2,), fill_value=3.0, device="cpu")
    assert task.result().tolist() == [3.0, 3.0]
    assert (task.name, stream.submit(print, end="", name="quiet").name) == ("full", "quiet")
    assert repr(stream) == "<mine: 0 tasks>" or stream.synchronize(30)
    assert stream.submit(lambda: threading.current_thread().name).result() == "mine"


# Cancelling


def test_a_waiting_task_can_be_cancelled_and_others_run() -> None:
    stream = Stream("cpu")
    order: list[int] = []
    with Gate(stream) as gate:
        tasks = [stream.submit(order.append, i) for i in range(5)]
        assert tasks[1].cancel()
        assert tasks[3].cancel()
        assert not gate.task.cancel()
    assert gate.task.result() == "opened"
    stream.synchronize(30)
    assert order == [0, 2, 4]
    assert [t.state for t in tasks] == ["finished", "cancelled", "finished", "cancelled", "finished"]
    assert not tasks[0].cancel()


# Room


def test_submit_waits_for_room() -> None:
    stream = Stream("cpu", limit=3)
    most: list[int] = []
    with Gate(stream) as gate:
        for _ in range(3):
            stream.submit(lambda: most.append(len(stream)))
        assert len(stream) == 4  # with the one that runs
        with ThreadPoolExecutor(4) as pool:
            late = [pool.submit(stream.submit, lambda: most.append(len(stream))) for _ in range(4)]
            while stream._queue.changed.waiting < 4:
                time.sleep(0.001)
            assert not any(each.done() for each in late)
            gate.opened.set()
            for each in late:
                each.result(30).result(30)
    assert len(most) == 7
    assert max(most) <= 4
    assert len(stream._queue.places) == 3


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_task_that_submits_to_its_own_full_stream_does_not_wait(limit: int) -> None:
    stream = Stream("cpu", limit=limit)
    order: list[int] = []

    def spread() -> None:
        for i in range(10):
            stream.submit(order.append, i)

    stream.submit(spread).result(30)
    stream.synchronize(30)
    assert order == list(range(10))
    assert len(stream._queue.places) == limit
    for _ in range(limit):  # all places are there again
        stream.submit(order.append, 0)
    stream.synchronize(30)


def test_closing_wakes_those_who_wait_for_room() -> None:
    stream = Stream("cpu", limit=1)
    with Gate(stream) as gate, ThreadPoolExecutor(3) as pool:
        waiting = stream.submit(print)
        blocked = [pool.submit(stream.submit, print) for _ in range(3)]
        while stream._queue.changed.waiting < 3:
            time.sleep(0.001)
        stream.close()
        for each in blocked:
            with pytest.raises(DeviceError, match=r"\[Stream\] .* is closed; make another one"):
                each.result(30)
        assert waiting.state == "cancelled"
    assert gate.task.result() == "opened"  # what runs is finished


def test_a_wait_for_a_full_stream_ends_in_time() -> None:
    stream = Stream("cpu", limit=1)
    with Gate(stream):
        stream.submit(int)
        assert not stream.synchronize(0.02)
    assert stream.synchronize(30)


def test_a_limit_is_a_number_of_tasks() -> None:
    with pytest.raises(ArgumentError, match=r"\[Stream\] limit must be at least 1, got 0"):
        Stream("cpu", limit=0)


# Errors


def test_an_error_belongs_to_its_task() -> None:
    stream = Stream("cpu")

    def fail() -> None:
        dl.ones(2, 3) @ dl.ones(2, 3)

    bad, good = stream.submit(fail), stream.submit(dl.ones, 2)
    with pytest.raises(ShapeError):
        bad.result(30)
    assert bad.state == "failed"
    assert good.result(30).tolist() == [1.0, 1.0]
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            stream.submit(_raise, error).result(30)
    assert stream.synchronize(30)


def _raise(error: type[BaseException]) -> None:
    raise error


def test_a_task_cannot_wait_for_its_own_stream() -> None:
    stream = Stream("cpu")
    with pytest.raises(DeviceError, match="waits for itself"):
        stream.submit(stream.synchronize).result(30)


# Memory


def test_results_and_arguments_are_freed() -> None:
    class Large:
        pass

    stream = Stream("cpu")
    argument = Large()
    made = stream.submit(lambda kept: Large(), argument)
    seen = [weakref.ref(argument), weakref.ref(made.result(30))]
    del argument, made
    assert stream.synchronize(30)
    assert [ref() for ref in seen] == [None, None]


def test_memory_stays_flat() -> None:
    stream = Stream("cpu", limit=64)

    def many(count: int) -> None:
        for _ in range(count):
            stream.submit(int)
        assert stream.synchronize(30)

    many(500)
    gc.collect()
    tracemalloc.start()
    try:
        many(500)
        before = tracemalloc.get_traced_memory()[0]
        many(5000)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after - before < 20_000  # a task each would be a megabyte


# How threads end


def test_a_stream_that_nobody_holds_ends_its_thread() -> None:
    stream = Stream("cpu")
    stream.submit(int).result(30)
    thread = stream._queue.thread
    del stream
    assert ended(thread)


def test_a_stream_that_nobody_holds_does_what_it_was_given() -> None:
    order: list[int] = []
    stream = Stream("cpu")
    thread = None
    with Gate(stream):
        tasks = [stream.submit(order.append, i) for i in range(50)]
        thread = stream._queue.thread
        del stream
        gc.collect()
    for task in tasks:
        task.result(30)
    assert order == list(range(50))
    assert ended(thread)
    assert Stream("cpu").submit(lambda: 7).result(30) == 7


def test_a_stream_in_a_cycle_is_ended_by_the_garbage_collector() -> None:
    """Which may come in any thread at any time, the stream's own included."""
    threads = []
    for _ in range(30):
        stream = Stream("cpu")
        stream.submit(gc.collect)
        thread = stream._queue.thread
        assert thread is not None
        threads.append(thread)
        stream.itself = stream  # type: ignore[attr-defined]
    del stream
    until = time.monotonic() + 30
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        gc.collect()  # does nothing while another thread collects
        time.sleep(0.001)
    assert not any(thread.is_alive() for thread in threads)


def test_close_cancels_what_waits_and_the_thread_ends() -> None:
    stream = Stream("cpu")
    with Gate(stream) as gate:
        tasks = [stream.submit(int) for _ in range(5)]
        assert not stream.closed
        stream.close()
        stream.close()
        assert stream.closed
        assert not stream.join(0.01)  # something still runs
        assert [task.state for task in tasks] == ["cancelled"] * 5
        with pytest.raises(CancelledError):
            tasks[0].result()
    assert stream.join(30)
    assert gate.task.state == "finished"
    for use in (lambda: stream.submit(int), stream.record_event, stream.synchronize):
        with pytest.raises(DeviceError, match="is closed"):
            use()
    unused = Stream("cpu")
    unused.close()
    assert unused.join()


def test_a_task_may_close_its_own_stream() -> None:
    stream = Stream("cpu")

    def close() -> bool:
        stream.close()
        return stream.join()

    assert stream.submit(close).result(30)
    assert stream.join(30)


AT_EXIT = """
import sys, threading, time
import dl4all as dl
from dl4all.scheduler.cost.simulation import simulated_device

streams = [dl.Stream(device) for device in ({devices})]
begun = threading.Barrier(len(streams) + 1)

def work(index):
    begun.wait()
    time.sleep(0.1)
    total = dl.full((3,), 2.0).sum().item()
    sys.stdout.write(f"{{index}} {{total}}\\n")  # in one piece

tasks = [stream.submit(work, index) for index, stream in enumerate(streams)]
waiting = [stream.submit(time.sleep, 100) for stream in streams]
first = streams.pop()
del first  # a stream that nobody holds any more is waited for, too
begun.wait()
"""


@pytest.mark.parametrize(
    ("devices", "count"),
    [("'cpu', 'cpu#1'", 2), ("simulated_device(),", 1), ("simulated_device(), 'cpu', 'vulkan:0'", 3)],
)
def test_the_process_ends_when_running_tasks_have(devices: str, count: int) -> None:
    """Devices are closed after that; those that wait are not begun."""
    if "vulkan" in devices:
        need("vulkan:0")
    done = run_python(AT_EXIT.format(devices=devices), DL4ALL_CALIBRATE="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"{i} 6.0" for i in range(count)]


# On the virtual clock


def second(times: float = 1.0) -> None:
    """Let a device that does a flop a nanosecond work for so long."""
    simulated = dl.zeros(1).device.simulated
    assert simulated is not None
    simulated.launch("", 0.0, times * 1e9)


def simulated(**facts: Any) -> Device:
    return simulated_device(**{"gflops": 1.0, "gb_per_s": 1e9, "launch_us": 0.0, **facts})


def test_virtual_times_follow_from_the_program() -> None:
    """Whatever the threads do meanwhile."""
    for _ in range(20):
        clock.set_to(1.0)
        first, other = Stream(simulated()), Stream(simulated())
        a = first.submit(second, 4.0)
        b = other.submit(second, 1.0)
        clock.set_to(3.0)
        c = other.submit(second, 2.0)
        other.wait_event(first.record_event())
        d = other.submit(second, 1.0)
        assert other.synchronize()
        # Tasks end when they have asked; the device ends what they asked for.
        assert [t.submitted for t in (a, b, c, d)] == [1.0, 1.0, 3.0, 3.0]
        assert [t.begun for t in (a, b, c, d)] == [1.0, 1.0, 3.0, 5.0]
        assert clock.now() == 6.0


def test_room_has_its_virtual_time() -> None:
    """Who waits for room goes on when it came, even if the thread found it there."""
    for pause in (0.0, 0.002):
        clock.set_to(0.0)
        device = simulated()
        stream = Stream(device, limit=2)

        def work(device: Device = device) -> None:
            second()
            assert device.simulated is not None
            device.simulated.synchronize()

        tasks = []
        for _ in range(6):
            tasks.append(stream.submit(work))
            time.sleep(pause)
        assert [t.submitted for t in tasks] == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]
        assert tasks[-1].wait()
        assert [t.ended for t in tasks] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        assert stream.busy == 6.0


def test_a_virtual_timeout_takes_no_real_time() -> None:
    stream = Stream(simulated())
    stream.submit(second, 1e6)
    assert not stream.synchronize(1000.0)
    assert clock.now() == 1000.0
    assert stream.synchronize()
    assert clock.now() == pytest.approx(1e6)


def test_a_hung_device_hangs_its_stream_and_those_that_wait_for_it() -> None:
    hanging, healthy = Stream(simulated(failures=(Failure("hang", after=1),))), Stream(simulated())
    before, during, after = (hanging.submit(second) for _ in range(3))
    event = hanging.record_event()
    alone = healthy.submit(second)
    healthy.wait_event(event)
    dependent = healthy.submit(second)
    assert before.wait(10.0)
    assert alone.wait(10.0)
    clock.set_to(0.0)
    for task in (during, after, dependent):
        assert not task.wait(2.0)
    assert clock.now() == 6.0
    assert [t.state for t in (before, during, after, dependent)] == ["finished", "hung", "hung", "hung"]
    assert not event.synchronize(1.0)
    assert not hanging.query()
    assert not hanging.synchronize(1.0)
    for stream in (hanging, healthy):
        stream.close()
        assert stream.join(30)


def test_a_lost_device_fails_its_tasks_and_its_events() -> None:
    stream = Stream(simulated(failures=(Failure("lost"),)))
    task, event = stream.submit(second), stream.record_event()
    for wait in (task.result, event.synchronize, stream.synchronize):
        with pytest.raises(DeviceLostError):
            wait()
    assert stream.query()  # everything has run


# Exceptions of signal handlers


def test_a_task_that_came_without_a_signal_runs_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gave it was interrupted after the stream had it, and before the thread was told."""
    stream, ran = dl.Stream("cpu"), list[int]()
    stream.submit(ran.append, 1).result()
    queue = stream._queue
    while not queue.idle:
        time.sleep(0.001)

    class Torn:
        def put(self, item: object) -> None:
            raise KeyboardInterrupt

    signals = queue.signals
    monkeypatch.setattr(queue, "signals", Torn())
    with pytest.raises(KeyboardInterrupt):
        stream.submit(ran.append, 2)
    monkeypatch.setattr(queue, "signals", signals)
    stream.submit(ran.append, 3).result()
    assert ran == [1, 2, 3]
    assert len(queue.places) == queue.limit
    stream.close()


def test_a_cancellation_that_was_cut_short_ends_in_the_stream() -> None:
    """Otherwise who waits for the task would wait for ever."""
    stream = dl.Stream("cpu")
    go = threading.Event()
    stream.submit(go.wait, 30)
    task = stream.submit(int)
    task._take()  # all that cancel() has come to
    go.set()
    with pytest.raises(CancelledError):
        task.result(30)
    stream.close()


def test_closing_that_was_cut_short_cancels_all(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = dl.Stream("cpu")
    go = threading.Event()
    running = stream.submit(go.wait, 30)
    while running.state == "waiting":
        time.sleep(0.001)
    waiting = [stream.submit(int) for _ in range(3)]

    def torn() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stream._queue, "cancel_all", torn)
        with pytest.raises(KeyboardInterrupt):
            stream.close()
    go.set()
    assert running.result(30) is True
    for task in waiting:
        with pytest.raises(CancelledError):
            task.result(30)
    assert stream.join(30)
