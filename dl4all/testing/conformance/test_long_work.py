"""Dispatches said to take longer than one submission may: in parts or not, the result is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import SUBMISSION_SECONDS, Command, Copy, Dispatch, Fill, Grid, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import placed, pushed, step, words

pytestmark = pytest.mark.usefixtures("programs", "data")
GRIDS: list[Grid] = [
    (1, 1, 1), (2, 1, 1), (101, 1, 1), (1, 101, 1), (1, 1, 101),
    (7, 11, 1), (1, 7, 11), (11, 1, 7), (5, 7, 3),
]  # fmt: skip
PREDICTED = [0.0, 0.9, 1.1, 2.5, 7.0, 1000.0, 1e12]  # of SUBMISSION_SECONDS
N = 10_007


def grid(bench: Bench, name: str, target: Any, groups: Grid, seconds: float) -> Dispatch:
    """``groups`` or ``placed`` over a grid."""
    push = b"" if name == "groups" else pushed(2 * groups[0], 3 * groups[1])
    return Dispatch(bench.kernels.program(name), [target], groups, push, seconds)


@pytest.mark.parametrize("name", ["placed", "groups"])
@pytest.mark.parametrize("groups", GRIDS)
def test_grids_of_every_shape(bench: Bench, name: str, groups: Grid) -> None:
    """Each workgroup runs once, in its place; also where it looks how many there are."""
    count = 24 * groups[0] * groups[1] * groups[2]
    before = words(1, count + 8)
    buffer, expected = bench.put(before), before[:-8]
    for part in PREDICTED:
        bench.stream.dispatch(grid(bench, name, span(buffer), groups, part * SUBMISSION_SECONDS))
        expected = placed(expected, groups)
        bench.expect(buffer, np.concatenate([expected, before[-8:]]), f"predicted {part}")


@pytest.mark.parametrize("part", PREDICTED)
def test_between_other_commands(bench: Bench, part: float) -> None:
    """Every part comes after what was before, and before what comes after."""
    x, y = bench.put(words(1, N)), bench.poison(N)
    expected = words(1, N)
    for k in range(5):
        bench.run("rotate", x, y, n=N, k=1)
        bench.stream.dispatch(bench.command("step", y, x, n=N, k=k, seconds=part * SUBMISSION_SECONDS))
        bench.run("rotate", x, y, n=N, k=5)
        bench.stream.copy(Copy(span(y, 0, 4 * N), span(x, 0, 4 * N)))
        expected = np.roll(step(np.roll(expected, 1), k), 5)
    bench.expect(x, expected)


def test_many_in_a_row(bench: Bench) -> None:
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    for k in range(20):
        bench.stream.dispatch(bench.command("rotate", x, y, n=N, k=k + 1, seconds=3.0 * SUBMISSION_SECONDS))
        expected = np.roll(expected, k + 1)
        x, y = y, x
    bench.expect(x, expected)


def test_many_short_ones_that_are_long_together(bench: Bench) -> None:
    x, expected = bench.put(words(1, N)), words(1, N)
    for k in range(60):
        bench.stream.dispatch(bench.command("step_in_place", x, n=N, k=k, seconds=0.3 * SUBMISSION_SECONDS))
        expected = step(expected, k)
    bench.expect(x, expected)


def test_timed(bench: Bench) -> None:
    """In however many parts, it is told once."""
    x, told = bench.put(words(1, N)), list[Any]()
    command = bench.command("step_in_place", x, n=N, k=1, seconds=5.0 * SUBMISSION_SECONDS)
    for _ in range(3):
        bench.stream.dispatch(command, lambda *times: told.append(times))
    bench.stream.synchronize()
    if bench.capabilities.clock is not None:
        assert len(told) == 3
        moments = [moment for start, end, _ in told for moment in (start, end)]
        assert moments == sorted(moments)
    bench.expect(x, step(step(step(words(1, N), 1), 1), 1))


@pytest.mark.parametrize("part", PREDICTED)
def test_recorded(bench: Bench, part: float) -> None:
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    commands: list[Command] = [
        bench.command("rotate", x, y, n=N, k=1),
        bench.command("step", y, x, n=N, k=0, seconds=part * SUBMISSION_SECONDS),
        Fill(span(x, 0, 8), 5),
    ]
    recording = bench.record(commands, changing=[1])
    for k in range(4):
        command = bench.command("step", y, x, n=N, k=k, seconds=part * SUBMISSION_SECONDS)
        bench.stream.replay(recording, {1: command})
        expected = step(np.roll(expected, 1), k)
        expected[:2] = 5
    bench.expect(x, expected)
