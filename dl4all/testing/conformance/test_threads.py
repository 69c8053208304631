"""One device, many threads: each with streams of its own, and through events with each other's."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import Copy, Fill, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import bytes_of, get, step, words

pytestmark = pytest.mark.usefixtures("data")
N = 1009
THREADS = 4
PATIENCE = 120.0


def at_once(jobs: Sequence[Callable[[], None]]) -> None:
    """Run every job in a thread of its own; what any of them raises is raised."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result(PATIENCE)


def test_each_thread_its_own_stream(bench: Bench) -> None:
    def work(seed: int, stream: Any, x: Any, y: Any) -> None:
        expected = words(seed, N)
        for i in range(60):
            stream.fill(Fill(span(x, 4 * (i % 9), 4), i))
            stream.copy(Copy(span(x, 0, 4 * N), span(y, 0, 4 * N)))
            expected[i % 9] = i
            if i % 10 == seed % 10:
                np.testing.assert_array_equal(get(bench.backend, y, N, stream), expected)
                expected = words(1000 * seed + i, N)
                stream.upload(span(x), bytes_of(expected))
        np.testing.assert_array_equal(get(bench.backend, x, N, stream), expected)

    jobs = []
    for seed in range(THREADS):
        stream, x, y = bench.new_stream(), bench.put(words(seed, N)), bench.poison(N)
        stream.wait_event(bench.stream.record_event())
        jobs.append(functools.partial(work, seed, stream, x, y))
    at_once(jobs)


@pytest.mark.usefixtures("programs")
def test_each_thread_its_own_chain(bench: Bench) -> None:
    program_names = ("step", "rotate")

    def work(seed: int, stream: Any, x: Any, y: Any) -> None:
        expected = words(seed, N)
        for i in range(150):
            name = program_names[(seed + i) % 2]
            bench.run(name, x, y, n=N, k=i, stream=stream)
            expected = step(expected, i) if name == "step" else np.roll(expected, i)
            x, y = y, x
        np.testing.assert_array_equal(get(bench.backend, x, N, stream), expected)

    for name in program_names:
        bench.kernels.program(name)
    jobs = []
    for seed in range(THREADS):
        stream, x, y = bench.new_stream(), bench.put(words(seed, N)), bench.poison(N)
        stream.wait_event(bench.stream.record_event())
        jobs.append(functools.partial(work, seed, stream, x, y))
    at_once(jobs)


def test_threads_hand_a_buffer_round(bench: Bench) -> None:
    """Each waits on the device for the one before it; none waits on the host."""
    rounds = 40
    x, y = bench.put(words(1, N)), bench.poison(N)
    streams = [bench.new_stream() for _ in range(THREADS)]
    turns: list[queue.Queue[Any]] = [queue.Queue() for _ in range(THREADS)]

    def work(place: int) -> None:
        stream = streams[place]
        for i in range(place, rounds, THREADS):
            stream.wait_event(turns[place].get(timeout=PATIENCE))
            stream.fill(Fill(span(x, 4 * (i % 9), 4), i))
            stream.copy(Copy(span(x, 0, 4 * N - 4), span(y, 4, 4 * N - 4)))
            stream.copy(Copy(span(x, 4 * N - 4, 4), span(y, 0, 4)))
            stream.copy(Copy(span(y), span(x)))
            turns[(place + 1) % THREADS].put(stream.record_event())

    turns[0].put(bench.stream.record_event())
    at_once([functools.partial(work, place) for place in range(THREADS)])
    expected = words(1, N)
    for i in range(rounds):
        expected[i % 9] = i
        expected = np.roll(expected, 1)
    bench.stream.wait_event(turns[rounds % THREADS].get(timeout=PATIENCE))
    bench.expect(x, expected)


def test_one_thread_waits_for_what_another_records(bench: Bench) -> None:
    x, stream = bench.put(words(1, N)), bench.new_stream()
    stream.wait_event(bench.stream.record_event())
    events: queue.Queue[Any] = queue.Queue()

    def produce() -> None:
        for word in range(50):
            stream.fill(Fill(span(x), word))
            events.put(stream.record_event())

    def consume() -> None:
        for _ in range(50):
            event = events.get(timeout=PATIENCE)
            assert event.synchronize(PATIENCE)
            assert event.query()

    at_once([produce, consume])
    np.testing.assert_array_equal(get(bench.backend, x, N, stream), np.full(N, 49))


def test_everything_else_from_any_thread(bench: Bench) -> None:
    """Memory, streams, programs, recordings and events come and go in every thread."""
    backend, programs = bench.backend, bench.capabilities.programs
    modules = [bench.kernels.module(name) for name in ("step", "rotate", "step_in_place")] if programs else []

    def work(seed: int) -> None:
        for i in range(15):
            stream, buffer = backend.new_stream(), backend.allocate(4 * N + 4 * i)
            assert backend.memory().free >= 0
            stream.upload(span(buffer), bytes_of(words(seed, N)))
            moved = Copy(span(buffer, 0, 16), span(buffer, 32, 16))
            recording = backend.record([Fill(span(buffer, 8, 8), seed), moved])
            stream.replay(recording)
            assert stream.record_event().synchronize(PATIENCE)
            expected = words(seed, N)
            expected[2:4] = seed
            expected[8:12] = expected[:4]
            np.testing.assert_array_equal(get(backend, buffer, N, stream), expected)
            if modules:
                backend.program(modules[i % 3], ()).free()
            stream.close()
            recording.free()
            buffer.free()

    at_once([functools.partial(work, seed) for seed in range(THREADS)])


@pytest.mark.usefixtures("programs")
def test_threads_with_recordings_of_their_own(bench: Bench) -> None:
    def work(seed: int, stream: Any, x: Any, recording: Any) -> None:
        expected = words(seed, N)
        for k in range(40):
            stream.replay(recording, {0: bench.command("step_in_place", x, n=N, k=k)})
            expected = step(step(expected, k), 7)
        np.testing.assert_array_equal(get(bench.backend, x, N, stream), expected)

    jobs = []
    for seed in range(THREADS):
        stream, x = bench.new_stream(), bench.put(words(seed, N))
        stream.wait_event(bench.stream.record_event())
        recording = bench.record([bench.command("step_in_place", x, n=N, k=k) for k in (0, 7)], changing=[0])
        jobs.append(functools.partial(work, seed, stream, x, recording))
    at_once(jobs)
