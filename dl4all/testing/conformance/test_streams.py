"""Streams and the events that order them."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import Copy, Event, Fill, Stream, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import busy, bytes_of, step, words

N = 1000
PATIENCE = 60.0  # seconds; what takes longer has stopped
TRIES = (0.2, 0.5, 1.0, 2.0)  # seconds of work: a busy machine may keep a thread from looking in time


def comes(event: Event) -> bool:
    """Whether an event comes without anybody waiting for it."""
    deadline = time.monotonic() + PATIENCE
    while not event.query():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def fresh(bench: Bench) -> tuple[Any, Stream]:
    """A buffer, and a stream that may use it."""
    buffer, stream = bench.poison(N), bench.new_stream()
    stream.wait_event(bench.stream.record_event())
    return buffer, stream


# Events by themselves


def test_an_event_of_an_empty_stream(bench: Bench) -> None:
    for stream in (bench.stream, bench.new_stream()):
        event = stream.record_event()
        assert event.synchronize(PATIENCE) is True
        assert event.query() is True


def test_an_event_comes_without_further_calls(bench: Bench) -> None:
    x = bench.poison(N)
    for stream in (bench.stream, bench.new_stream()):
        stream.wait_event(bench.stream.record_event())
        for word in range(50):
            stream.fill(Fill(span(x), word))
        assert comes(stream.record_event())


def test_an_event_that_has_come_stays(bench: Bench) -> None:
    x, stream = fresh(bench)
    event = stream.record_event()
    assert event.synchronize() is True
    for word in range(100):
        stream.fill(Fill(span(x), word))
        assert event.query() is True
    later = stream.record_event()
    stream.synchronize()
    assert event.query() is True
    assert later.query() is True
    assert later.synchronize(0.0) is True


def test_events_come_in_order(bench: Bench) -> None:
    x, stream = fresh(bench)
    events = []
    for word in range(100):
        stream.fill(Fill(span(x), word))
        events.append(stream.record_event())
    assert events[60].synchronize() is True
    assert all(event.query() for event in events[:61])
    assert events[-1].synchronize() is True
    assert all(event.query() for event in events)


def test_waiting_with_a_timeout_says_whether_it_came(bench: Bench) -> None:
    x, stream = fresh(bench)
    for word in range(50):
        stream.fill(Fill(span(x), word))
    event = stream.record_event()
    for timeout in (0.0, -1.0, 1e-9, 0.01):
        assert event.synchronize(timeout) in (True, False)
    assert event.synchronize(PATIENCE) is True
    assert event.synchronize(1e300) is True  # no number is too large


def test_an_event_outlives_its_stream(bench: Bench) -> None:
    x, stream = fresh(bench)
    stream.fill(Fill(span(x), 3))
    event = stream.record_event()
    stream.close()
    assert event.query() is True
    assert event.synchronize() is True
    bench.stream.wait_event(event)
    if bench.capabilities.data:
        bench.expect(x, np.full(N, 3, np.uint32))


def test_a_stream_may_wait_for_itself(bench: Bench) -> None:
    x, stream = fresh(bench)
    for word in range(10):
        stream.fill(Fill(span(x), word))
        stream.wait_event(stream.record_event())
    stream.synchronize()


# Between streams


@pytest.mark.usefixtures("programs", "data")
@pytest.mark.parametrize("rounds", [1, 60])
def test_producer_and_consumer(bench: Bench, rounds: int) -> None:
    """Two streams take turns at two buffers."""
    ours, theirs = bench.stream, bench.new_stream()
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    for k in range(rounds):
        bench.run("rotate", x, y, n=N, k=1 + k, stream=ours)
        theirs.wait_event(ours.record_event())
        bench.run("step", y, x, n=N, k=k, stream=theirs)
        ours.wait_event(theirs.record_event())
        expected = step(np.roll(expected, 1 + k), k)
    bench.expect(x, expected)


@pytest.mark.usefixtures("data")
def test_hand_over_by_copies(bench: Bench) -> None:
    """The same without programs."""
    streams = [bench.stream, *(bench.new_stream() for _ in range(3))]
    buffers = [bench.put(words(i, N)) for i in range(4)]
    expected = words(0, N)
    for i in range(100):
        stream, source, target = streams[i % 4], buffers[i % 4], buffers[(i + 1) % 4]
        stream.fill(Fill(span(source, 4 * (i % 7), 8), i))
        stream.copy(Copy(span(source, 4, 4 * N - 4), span(target, 0, 4 * N - 4)))
        stream.copy(Copy(span(source, 0, 4), span(target, 4 * N - 4, 4)))
        expected[i % 7 : i % 7 + 2] = i
        expected = np.roll(expected, -1)
        streams[(i + 1) % 4].wait_event(stream.record_event())
    np.testing.assert_array_equal(bench.get(buffers[0], N, streams[0]), expected)


@pytest.mark.usefixtures("data")
def test_uploads_and_downloads_of_any_stream(bench: Bench) -> None:
    streams = [bench.new_stream() for _ in range(3)]
    x, y = bench.poison(N), bench.poison(N)
    events = [bench.stream.record_event()]
    for seed in range(30):
        up, across, down = (streams[(seed + i) % 3] for i in range(3))
        up.wait_event(events[-1])
        up.upload(span(x), bytes_of(words(seed, N)))
        across.wait_event(up.record_event())
        across.copy(Copy(span(x), span(y)))
        down.wait_event(across.record_event())
        np.testing.assert_array_equal(bench.get(y, N, down), words(seed, N))
        events.append(down.record_event())


@pytest.mark.usefixtures("programs", "data")
def test_many_streams(bench: Bench) -> None:
    """Each has buffers of its own; all work at once, then one collects."""
    streams = [bench.new_stream() for _ in range(16)]
    buffers = [bench.put(words(i, N)) for i in range(16)]
    ready = bench.stream.record_event()
    for stream in streams:
        stream.wait_event(ready)
    expected = [words(i, N) for i in range(16)]
    for k in range(20):
        for i, (stream, buffer) in enumerate(zip(streams, buffers, strict=True)):
            bench.run("step_in_place", buffer, n=N, k=k + i, stream=stream)
            expected[i] = step(expected[i], k + i)
    total = bench.put(np.zeros(N, np.uint32))
    other = bench.poison(N)
    for stream, buffer in zip(streams, buffers, strict=True):
        bench.stream.wait_event(stream.record_event())
        bench.run("add", total, buffer, other, n=N, k=1)
        total, other = other, total
    bench.expect(total, np.sum(expected, axis=0, dtype=np.uint32))


@pytest.mark.usefixtures("programs", "data")
def test_waiting_for_what_has_come_long_ago(bench: Bench) -> None:
    x, y, stream = bench.put(words(1, N)), bench.poison(N), bench.new_stream()
    bench.run("step", x, y, n=N, k=1)
    event = bench.stream.record_event()
    bench.stream.synchronize()
    for _ in range(3):
        stream.wait_event(event)
    bench.run("step", y, x, n=N, k=2, stream=stream)
    np.testing.assert_array_equal(bench.get(x, N, stream), step(step(words(1, N), 1), 2))


@pytest.mark.usefixtures("programs", "data")
def test_streams_that_wait_for_each_other_in_a_circle(bench: Bench) -> None:
    """Each waits for what the other had recorded before; that is no deadlock."""
    ours, theirs = bench.stream, bench.new_stream()
    x, y = bench.put(words(1, N)), bench.put(words(2, N))
    theirs.wait_event(ours.record_event())
    bench.run("step_in_place", x, n=N, k=1, stream=ours)
    bench.run("step_in_place", y, n=N, k=2, stream=theirs)
    early, earlier = ours.record_event(), theirs.record_event()
    theirs.wait_event(early)
    ours.wait_event(earlier)
    bench.run("step_in_place", y, n=N, k=3, stream=ours)
    bench.run("step_in_place", x, n=N, k=4, stream=theirs)
    last, latest = ours.record_event(), theirs.record_event()
    assert last.synchronize(PATIENCE)
    assert latest.synchronize(PATIENCE)
    np.testing.assert_array_equal(bench.get(x, N, theirs), step(step(words(1, N), 1), 4))
    np.testing.assert_array_equal(bench.get(y, N, ours), step(step(words(2, N), 2), 3))


@pytest.mark.usefixtures("programs", "data")
@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_that_waits_gets_on_when_the_other_is_closed(bench: Bench, begun: bool) -> None:
    """Whether the command that waits was there by then or comes later."""
    for seed in range(5):
        x, y, stream = bench.put(words(seed, N)), bench.poison(N), bench.backend.new_stream()
        stream.wait_event(bench.stream.record_event())
        bench.run("step", x, y, n=N, k=1, stream=stream)
        bench.stream.wait_event(stream.record_event())
        if begun:
            bench.run("step", y, x, n=N, k=2)
        stream.close()
        stream.close()
        if not begun:
            bench.run("step", y, x, n=N, k=2)
        assert bench.stream.record_event().synchronize(PATIENCE)
        bench.expect(x, step(step(words(seed, N), 1), 2))


def test_streams_come_and_go(bench: Bench) -> None:
    x = bench.poison(N)
    for word in range(40):
        stream = bench.backend.new_stream()
        stream.wait_event(bench.stream.record_event())
        stream.fill(Fill(span(x), word))
        bench.stream.wait_event(stream.record_event())
        stream.close()
        if bench.capabilities.data:
            bench.expect(x, np.full(N, word, np.uint32))


# While the device works


def keep_busy(bench: Bench, stream: Any, seconds: float) -> tuple[Any, Any]:
    """Put work of about that length into a stream; the buffer, and what it will hold."""
    k = bench.busy_for(seconds / 4, 4096)
    x, expected = bench.put(words(9, 4096)), words(9, 4096)
    stream.wait_event(bench.stream.record_event())
    bench.stream.synchronize()
    for _ in range(4):
        bench.run("busy", x, n=4096, k=k, stream=stream)
        expected = busy(expected, k)
    return x, expected


@pytest.mark.usefixtures("programs", "data")
def test_commands_return_before_they_have_run(bench: Bench) -> None:
    if not bench.capabilities.asynchronous:
        pytest.skip("not promised here")
    for seconds in TRIES:
        stream = bench.new_stream()
        x, expected = keep_busy(bench, stream, seconds)
        event = stream.record_event()
        pending = (event.query(), event.synchronize(0.0))
        assert event.synchronize(PATIENCE) is True
        np.testing.assert_array_equal(bench.get(x, 4096, stream), expected)
        if pending == (False, False):
            return
    pytest.fail(f"commands are asynchronous here, but with long work the event said {pending}")


@pytest.mark.usefixtures("programs", "data")
@pytest.mark.parametrize("how", ["stream", "event", "download"])
def test_waiting_lets_other_threads_run(bench: Bench, how: str) -> None:
    if not bench.capabilities.threads:
        pytest.skip("not promised here")
    for seconds in TRIES:
        x, expected = keep_busy(bench, bench.stream, seconds)
        ticks, stop = [time.monotonic()], threading.Event()

        def tick(ticks: list[float] = ticks, stop: threading.Event = stop) -> None:
            while not stop.wait(0.005):
                ticks.append(time.monotonic())

        thread = threading.Thread(target=tick)
        thread.start()
        begun = time.monotonic()
        if how == "stream":
            bench.stream.synchronize()
        elif how == "event":
            bench.stream.record_event().synchronize()
        else:
            bench.get(x, 1)
        ended = time.monotonic()
        stop.set()
        thread.join()
        bench.expect(x, expected)
        if sum(begun < moment < ended for moment in ticks) >= 3:
            return
    pytest.fail(f"{len(ticks)} ticks of another thread while this one waited {ended - begun:.2f} s")
