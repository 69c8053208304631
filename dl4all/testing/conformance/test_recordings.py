"""Recordings: commands prepared once and run many times."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import Command, Copy, Fill, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import bytes_of, pushed, step, words

N = 1000
data = pytest.mark.usefixtures("data")
programs = pytest.mark.usefixtures("programs", "data")


def swaps(bench: Bench, x: Any, y: Any, count: int) -> list[Command]:
    """A chain between two buffers, alternately rotated and stepped; an even count ends in x."""
    commands: list[Command] = []
    for i in range(count):
        commands.append(bench.command("rotate" if i % 2 else "step", x, y, n=N, k=i))
        x, y = y, x
    return commands


def swapped(array: Any, count: int) -> Any:
    for i in range(count):
        array = np.roll(array, i) if i % 2 else step(array, i)
    return array


# Without programs


@data
def test_copies_and_fills(bench: Bench) -> None:
    x, y = bench.put(words(1, N)), bench.put(words(2, N))
    commands: list[Command] = [
        Copy(span(x, 0, 2000), span(y, 1000, 2000)),
        Fill(span(y, 1500, 500), 77),
        Copy(span(y, 1400, 1200), span(x, 4, 1200)),
    ]
    recording = bench.record(commands)
    assert tuple(recording.commands) == tuple(commands)
    ours, theirs = words(1, N), words(2, N)
    bench.expect(x, ours)  # nothing has run yet
    for _ in range(3):
        bench.stream.replay(recording)
        theirs[250:750] = ours[:500]
        theirs[375:500] = 77
        ours[1:301] = theirs[350:650]
    bench.expect(x, ours)
    bench.expect(y, theirs)


@data
def test_a_recording_among_other_commands(bench: Bench) -> None:
    """Each writes what the next reads."""
    x, y = bench.put(words(1, N)), bench.poison(N)
    recording = bench.record([Copy(span(x, 0, 4 * N), span(y, 0, 4 * N)), Fill(span(x, 0, 8), 5)])
    for seed in range(30):
        bench.stream.upload(span(x), bytes_of(words(seed, N)))
        bench.stream.replay(recording)
        bench.stream.fill(Fill(span(y, 8, 4), seed))
        expected = words(seed, N)
        expected[2] = seed
        bench.expect(y, expected)
        expected[2] = words(seed, N)[2]
        expected[:2] = 5
        bench.expect(x, expected)


def test_an_empty_recording(bench: Bench) -> None:
    recording = bench.record([])
    assert tuple(recording.commands) == ()
    for _ in range(3):
        bench.stream.replay(recording)
        bench.stream.replay(recording, {})
    bench.stream.synchronize()


def test_recordings_come_and_go(bench: Bench) -> None:
    x = bench.poison(N)
    for word in range(100):
        recording = bench.backend.record([Fill(span(x), word)])
        bench.stream.replay(recording)
        if bench.capabilities.data:
            bench.expect(x, np.full(N, word, np.uint32))
        bench.stream.synchronize()
        recording.free()
        recording.free()


def test_a_recording_that_never_ran_can_be_freed(bench: Bench) -> None:
    x = bench.poison(N)
    bench.backend.record([Fill(span(x), 1)]).free()
    bench.stream.synchronize()
    x.free()


# With programs


@programs
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 300])
def test_a_chain_of_any_length(bench: Bench, length: int) -> None:
    x, y = bench.put(words(1, N)), bench.poison(N)
    recording = bench.record(swaps(bench, x, y, length))
    expected = words(1, N)
    for _ in range(3):
        bench.stream.replay(recording)
        bench.expect(y if length % 2 else x, swapped(expected, length))
        expected = swapped(expected, length - length % 2)  # what x holds


@programs
def test_replays_that_follow_each_other(bench: Bench) -> None:
    """The first command of one depends on the last of the one before, without a wait between them."""
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    recording = bench.record(swaps(bench, x, y, 4))
    for _ in range(100):
        bench.stream.replay(recording)
        expected = swapped(expected, 4)
    bench.expect(x, expected)


@programs
def test_two_recordings_in_turn(bench: Bench) -> None:
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    recordings = [bench.record(swaps(bench, x, y, count)) for count in (2, 6)]
    for i in range(40):
        bench.stream.replay(recordings[i % 2])
        expected = swapped(expected, (2, 6)[i % 2])
    bench.expect(x, expected)


@programs
def test_every_kind_of_dependency_around_it(bench: Bench) -> None:
    """The recording reads x and writes y; before and after it, commands write x and read and write y."""
    x, y, z = bench.put(words(1, N)), bench.poison(N), bench.poison(N)
    recording = bench.record([bench.command("step", x, y, n=N, k=1), bench.command("step", y, z, n=N, k=2)])
    value = words(1, N)
    for k in range(50):
        bench.run("step_in_place", x, n=N, k=k)  # read after write, write after read
        bench.run("rotate", x, y, n=N, k=1)  # write after write
        bench.stream.replay(recording)
        value = step(value, k)
        if k % 3 == 0:
            bench.run("rotate", z, y, n=N, k=3)
    bench.expect(z, step(step(value, 1), 2))
    bench.expect(x, value)
    bench.expect(y, step(value, 1))


@programs
def test_reads_in_common(bench: Bench) -> None:
    """Many results of one buffer, then one of all of them."""
    x, outs, total = bench.put(words(1, N)), [bench.poison(N) for _ in range(8)], bench.put(words(2, N))
    commands: list[Command] = [bench.command("step", x, out, n=N, k=i) for i, out in enumerate(outs)]
    spare = bench.poison(N)
    for out in outs:
        commands.append(bench.command("add", total, out, spare, n=N, k=3))
        total, spare = spare, total
    recording = bench.record(commands)
    expected = words(2, N)
    for _ in range(2):
        bench.stream.replay(recording)
        for i in range(8):
            expected = expected + step(words(1, N), i) * np.uint32(3)
        bench.expect(total, expected)


@programs
def test_programs_copies_and_fills_in_one(bench: Bench) -> None:
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    recording = bench.record(
        [
            bench.command("step", x, y, n=N, k=1),
            Copy(span(y, 0, 2000), span(x, 2000, 2000)),
            Fill(span(y, 0, 2000), 9),
            bench.command("step_in_place", x, n=N, k=2),
            Fill(span(x, 0, 4), 3),
        ]
    )
    for _ in range(10):
        bench.stream.replay(recording)
        stepped = step(expected, 1)
        expected = step(np.concatenate([expected[:500], stepped[:500]]), 2)
        expected[0] = 3
    bench.expect(x, expected)
    stepped[:500] = 9
    bench.expect(y, stepped)


# Streams


@programs
def test_in_another_stream(bench: Bench) -> None:
    """With other push constants while the first replay may still run."""
    x, y, stream = bench.put(words(1, N)), bench.poison(N), bench.new_stream()
    stepped = bench.command("step", x, y, n=N, k=1)
    recording = bench.record([stepped, bench.command("rotate", y, x, n=N, k=1)], changing=[0])
    expected = words(1, N)
    streams = [bench.stream, stream]
    for k in range(40):
        ours, other = streams[k % 2], streams[(k + 1) % 2]
        ours.replay(recording, {0: stepped._replace(push=pushed(N, k))} if k % 3 else None)
        last = k if k % 3 else (k - 1 if k else 1)
        expected = np.roll(step(expected, last), 1)
        other.wait_event(ours.record_event())
    np.testing.assert_array_equal(bench.get(x, N, streams[0]), expected)


@programs
def test_it_waits_for_events(bench: Bench) -> None:
    x, y, stream = bench.put(words(1, N)), bench.poison(N), bench.new_stream()
    recording = bench.record([bench.command("step", x, y, n=N, k=1)])
    expected = words(1, N)
    for k in range(30):
        bench.run("step_in_place", x, n=N, k=k)
        stream.wait_event(bench.stream.record_event())
        stream.replay(recording)
        bench.stream.wait_event(stream.record_event())
        expected = step(expected, k)
    bench.expect(y, step(expected, 1))


# What it is good for


@programs
def test_replaying_costs_less_than_recording_again(bench: Bench) -> None:
    """Of commands that partly depend on each other, as a network's do."""
    if not bench.capabilities.replay:
        pytest.skip("not promised here")
    pairs = [(bench.put(words(i, N)), bench.poison(N)) for i in range(10)]
    chains = [swaps(bench, *pair, 20) for pair in pairs]
    commands: Any = [chain[i] for i in range(20) for chain in chains]
    recording = bench.record(commands)

    def seconds(replay: bool) -> float:
        bench.stream.synchronize()
        begun = time.perf_counter()
        if replay:
            bench.stream.replay(recording)
        else:
            for command in commands:
                bench.stream.dispatch(command)
        return time.perf_counter() - begun

    best = {replay: min(seconds(replay) for _ in range(7)) for replay in (False, True)}
    for i, (x, _) in enumerate(pairs):
        expected = words(i, N)
        for _ in range(14):
            expected = swapped(expected, 20)
        bench.expect(x, expected)
    assert best[True] < best[False]
