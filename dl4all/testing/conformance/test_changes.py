"""Dispatches of a recording that are replaced: other push constants, other spans, many under way."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.protocols import Command, Copy, Dispatch, Fill, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import pushed, step, words

N = 1000
pytestmark = pytest.mark.usefixtures("programs", "data")


# Push constants


@pytest.mark.parametrize("changing", [[0, 1, 2], [0, 2], [1]])
def test_new_push_constants(bench: Bench, changing: list[int]) -> None:
    """The last push constants stay; the others are as they were recorded."""
    x = bench.put(words(1, N))
    ks = [1, 2, 3]
    recording = bench.record([bench.command("step_in_place", x, n=N, k=k) for k in ks], changing)
    expected = words(1, N)
    given: list[dict[int, int]] = [{}, {1: 7}, {}, {0: 4, 2: 5}, {}, {1: 8}, {0: 6}, {}]
    for i, news in enumerate(given):
        news = {j: k for j, k in news.items() if j in changing}
        changes = {j: bench.command("step_in_place", x, n=N, k=k) for j, k in news.items()}
        # Nothing, and nothing to replace, are the same.
        bench.stream.replay(recording, changes if changes or i % 4 else None)
        for j, k in news.items():
            ks[j] = k
        for k in ks:
            expected = step(expected, k)
    bench.expect(x, expected)


def test_new_push_constants_while_the_last_ones_are_in_use(bench: Bench) -> None:
    """Many replays under way, each with others."""
    x, results = bench.put(words(1, N)), bench.poison(N)
    outs = [bench.poison(N) for _ in range(60)]
    recording = bench.record([bench.command("step", x, results, n=N, k=0)], [0])
    for k, out in enumerate(outs):
        bench.stream.replay(recording, {0: bench.command("step", x, results, n=N, k=k)})
        bench.stream.copy(Copy(span(results), span(out)))
    for k, out in enumerate(outs):
        bench.expect(out, step(words(1, N), k))


def test_fewer_elements_than_recorded(bench: Bench) -> None:
    x, y = bench.put(words(1, N)), bench.poison(N)
    command = bench.command("step", x, y, n=N, k=1)
    recording = bench.record([command], [0])
    bench.stream.replay(recording, {0: command._replace(push=pushed(333, 2))})
    expected = np.full(N, 0xFFFFFFFF, np.uint32)
    expected[:333] = step(words(1, N)[:333], 2)
    bench.expect(y, expected)


@pytest.mark.parametrize(
    "push",
    [
        {0: b""},
        {0: pushed(N, 1) + b"\0\0\0\0"},
        {0: pushed(N, 1)[:4]},
        {2: pushed(N, 9), 0: b"\0"},  # the right one does not count either
    ],
)
def test_push_constants_that_do_not_fit(bench: Bench, push: dict[int, bytes]) -> None:
    """They are refused, and what was given before stays."""
    x, y = bench.put(words(1, N)), bench.poison(N)
    commands = [bench.command("step_in_place", x, n=N, k=k) for k in (3, 4)]
    recording = bench.record([commands[0], Fill(span(y), 1), commands[1]], [0, 2])
    with pytest.raises(ArgumentError):
        bench.stream.replay(recording, {i: commands[i // 2]._replace(push=data) for i, data in push.items()})
    bench.expect(x, words(1, N))
    bench.stream.replay(recording)
    bench.expect(x, step(step(words(1, N), 3), 4))


# Spans


def through(bench: Bench, x: Any, inner: list[Any], y: Any) -> list[Dispatch]:
    """A chain from x to y, which only its first and last commands know: buffers of a caller, and a plan's."""
    places = [x, *inner, y]
    return [
        bench.command("rotate" if i % 2 else "step", source, target, n=N, k=i)
        for i, (source, target) in enumerate(itertools.pairwise(places))
    ]


def passed(array: Any, count: int) -> Any:
    for i in range(count):
        array = np.roll(array, i) if i % 2 else step(array, i)
    return array


@pytest.mark.parametrize("length", [1, 2, 3, 12])
def test_other_inputs_and_results(bench: Bench, length: int) -> None:
    """Results alternate between two places at first, as those of a pool do, and are new later."""
    inner = [bench.poison(N) for _ in range(length - 1)]
    first = through(bench, bench.put(words(0, N)), inner, bench.poison(N))
    recording = bench.record(first, {0, length - 1})
    xs = [bench.put(words(seed, N)) for seed in range(1, 30)]
    outs = [bench.poison(N) for _ in xs]
    for i, x in enumerate(xs):
        commands = through(bench, x, inner, outs[i % 2 if i < 12 else i])
        bench.stream.replay(recording, {j: commands[j] for j in (0, length - 1)})
        if 9 < i < 12:
            bench.expect(outs[i % 2], passed(words(i + 1, N), length))
    for i in range(12, len(xs)):
        bench.expect(outs[i], passed(words(i + 1, N), length))
    bench.stream.replay(recording)
    bench.expect(outs[-1], passed(words(len(xs), N), length))


def test_one_of_several(bench: Bench) -> None:
    """Commands that may change among others that may not; those given last stay."""
    count = 9
    xs, outs = [bench.put(words(seed, N)) for seed in range(count)], [bench.poison(N) for _ in range(count)]
    spare = [bench.poison(N) for _ in range(count)]
    now = [bench.command("step", xs[i], outs[i], n=N, k=i) for i in range(count)]
    recording = bench.record(now, [0, 3, 4, 8])
    for turn, changed in enumerate([[0], [3], [4, 8], [], [0, 3, 4, 8], [8], [0]]):
        for i in changed:
            places = spare if turn % 2 else outs
            now[i] = bench.command("step", xs[i], places[i], n=N, k=10 * turn + i)
        bench.stream.replay(recording, {i: now[i] for i in changed})
        for i, command in enumerate(now):
            k = int.from_bytes(command.push[4:], "little")
            bench.expect(command.spans[1], step(words(i, N), k), f"turn {turn}, command {i}")
            bench.stream.fill(Fill(command.spans[1], turn))


def test_parts_of_a_buffer(bench: Bench) -> None:
    if not bench.unit:
        pytest.skip("dispatches bind whole buffers here")
    part = -(-N // bench.unit) * bench.unit
    x, y = bench.put(words(1, 8 * part)), bench.poison(8 * part)

    def command(i: int) -> Dispatch:
        place = 4 * part * i, 4 * part
        return bench.command("step", span(x, *place), span(y, *place), n=part, k=i)

    recording = bench.record([command(0)], [0])
    for i in range(1, 8):
        bench.stream.replay(recording, {0: command(i)})
    for i in range(1, 8):
        expected = step(words(1, 8 * part)[i * part : (i + 1) * part], i)
        bench.expect(span(y, 4 * part * i, 4 * part), expected)


def test_what_comes_around_waits(bench: Bench) -> None:
    """Uploads to an input's place, and downloads of a result's, while replays with others are under way."""
    xs, ys = [bench.poison(N) for _ in range(2)], [bench.poison(N) for _ in range(2)]
    middle = bench.poison(N)
    recording = bench.record(through(bench, xs[0], [middle], ys[0]), [0, 1])
    for seed in range(40):
        x, y = xs[seed % 2], ys[seed // 2 % 2]
        bench.stream.upload(span(x), words(seed, N).view(np.uint8))
        commands = through(bench, x, [middle], y)
        bench.stream.replay(recording, {0: commands[0], 1: commands[1]})
        if seed % 3 == 0:
            bench.expect(y, passed(words(seed, N), 2))


def test_in_two_streams(bench: Bench) -> None:
    """Each with places of its own, in turn; both may still run when the next is written."""
    streams = [bench.stream, bench.new_stream()]
    xs = [bench.put(words(seed, N)) for seed in (1, 2)]
    outs: list[list[tuple[int, Any]]] = [[], []]
    for stream in streams[1:]:
        stream.wait_event(bench.stream.record_event())
    recording = bench.record([bench.command("step", xs[0], bench.poison(N), n=N, k=0)], [0])
    for k in range(40):
        turn = k % 2
        out = bench.allocate(4 * N)
        streams[turn].replay(recording, {0: bench.command("step", xs[turn], out, n=N, k=k)})
        outs[turn].append((k, out))
    for turn, stream in enumerate(streams):
        for k, out in outs[turn]:
            np.testing.assert_array_equal(bench.get(out, N, stream), step(words(turn + 1, N), k))


# What is refused


def test_only_what_was_recorded_so_may_change(bench: Bench) -> None:
    x, y = bench.put(words(1, N)), bench.poison(N)
    commands: list[Command] = [
        bench.command("step_in_place", x, n=N, k=3),
        Fill(span(y), 1),
        bench.command("step_in_place", x, n=N, k=4),
    ]
    recording = bench.record(commands, [2])
    other = bench.command("step_in_place", y, n=N, k=5)
    wrong: list[dict[int, Any]] = [
        {0: other},
        {1: other},
        {3: other},
        {-1: other},
        {2: Fill(span(x), 1)},
        {2: other._replace(groups=(1, 1, 1))},
        {2: bench.command("step", y, x, n=N, k=5)},  # another program
        {2: other, 0: other},
    ]
    for changes in wrong:
        with pytest.raises(ArgumentError):
            bench.stream.replay(recording, changes)
    for index in (1, 3, -1):
        with pytest.raises(ArgumentError):
            bench.backend.record(commands, [index])
    bench.expect(x, words(1, N))
    bench.stream.replay(recording)
    bench.expect(x, step(step(words(1, N), 3), 4))


def test_spans_that_do_not_fit(bench: Bench) -> None:
    x, y = bench.put(words(1, N)), bench.poison(N)
    command = bench.command("step", x, y, n=N, k=1)
    recording = bench.record([command], [0])
    whole = span(y)
    for spans in ([span(x)], [span(x), span(y), span(y)], [span(x), whole._replace(offset=4 * N + 256)]):
        with pytest.raises(ArgumentError):
            bench.stream.replay(recording, {0: command._replace(spans=spans)})
    bench.stream.replay(recording)
    bench.expect(y, step(words(1, N), 1))


def test_freed_places(bench: Bench) -> None:
    """A result that was freed is refused until the command has another; so is a freed one that comes."""
    x, y, z = bench.put(words(1, N)), bench.poison(N), bench.poison(N)
    first, second = (bench.command("step", x, out, n=N, k=k) for k, out in enumerate((y, z), 1))
    recording = bench.record([first, bench.command("step_in_place", x, n=N, k=7)], [0])
    bench.stream.replay(recording)
    bench.stream.synchronize()
    y.free()
    for changes in (None, {}, {0: first}):
        with pytest.raises(DeviceError):
            bench.stream.replay(recording, changes)
    bench.stream.replay(recording, {0: second})
    bench.expect(z, step(step(words(1, N), 7), 2))
    with pytest.raises(DeviceError):
        bench.stream.replay(recording, {0: first})
    bench.stream.replay(recording)
    bench.expect(z, step(step(step(words(1, N), 7), 7), 2))
    bench.stream.synchronize()
    x.free()  # which the other command uses too
    with pytest.raises(DeviceError):
        bench.stream.replay(recording, {0: bench.command("step", z, bench.poison(N), n=N, k=1)})


def test_places_come_and_go(bench: Bench) -> None:
    """New memory may have the address of what was freed."""
    x = bench.put(words(1, N))
    held = bench.poison(N)
    recording = bench.record([bench.command("step", x, held, n=N, k=0)], [0])
    for k in range(50):
        out = bench.backend.allocate(4 * N)
        bench.stream.replay(recording, {0: bench.command("step", x, out, n=N, k=k % 3)})
        bench.expect(out, step(words(1, N), k % 3))
        bench.stream.synchronize()
        out.free()
