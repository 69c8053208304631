"""Dispatches that are asked when they ran."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import bytes_of, step, words

pytestmark = pytest.mark.usefixtures("programs")
N = 64
MANY = 97  # more than three batches, and not a multiple of one


@pytest.mark.parametrize("names", ["xy", "xyzu"], ids=["dependent", "independent"])
def test_each_is_told_once_and_none_overlaps_another(bench: Bench, names: str) -> None:
    if bench.capabilities.clock is None:
        pytest.skip("nobody times here")
    buffers = [bench.put(words(i, N)) for i, _ in enumerate(names)]
    told: list[tuple[int, float, float, str]] = []
    bench.stream.synchronize()
    begun = time.perf_counter()
    for i in range(MANY):
        pair = (buffers * 2)[2 * i % len(buffers) :][:2][:: -1 if len(buffers) == 2 and i % 2 else 1]
        ran = lambda start, end, clock, i=i: told.append((i, start, end, clock))  # noqa: E731
        bench.run("step", *pair, n=N, k=1, ran=ran)
    bench.stream.synchronize()
    ended = time.perf_counter()
    assert [i for i, *_ in told] == list(range(MANY))
    times = [moment for _, start, end, _ in told for moment in (start, end)]
    assert times == sorted(times)
    assert begun <= times[0]
    assert times[-1] <= ended
    assert {clock for *_, clock in told} == {bench.capabilities.clock}
    assert any(end > start for _, start, end, _ in told) or not bench.capabilities.data


def test_nobody_is_told_where_nobody_times(bench: Bench) -> None:
    if bench.capabilities.clock is not None:
        pytest.skip(f"the {bench.capabilities.clock} times here")
    told: list[Any] = []
    x = bench.put(words(1, N))
    bench.run("step_in_place", x, n=N, k=1, ran=lambda *times: told.append(times))
    bench.stream.synchronize()
    assert not told


@pytest.mark.usefixtures("data")
def test_what_is_timed_computes_the_same(bench: Bench) -> None:
    """Timed and untimed ones mixed, with a copy in between."""
    x, y, expected = bench.put(words(1, N)), bench.poison(N), words(1, N)
    told: list[Any] = []
    for i in range(MANY):
        ran = None if i % 3 else lambda *times: told.append(times)
        bench.run("step", x, y, n=N, k=i, ran=ran)
        expected = step(expected, i)
        if i == 50:
            expected = words(2, N)
            bench.stream.upload(span(y), bytes_of(expected))
        x, y = y, x
    bench.expect(x, expected)
    bench.stream.synchronize()
    if bench.capabilities.clock is not None:
        assert len(told) == len(range(0, MANY, 3))


@pytest.mark.usefixtures("data")
def test_in_several_streams(bench: Bench) -> None:
    """Each stream tells of its own, by the time it was waited for."""
    streams = [bench.stream, *(bench.new_stream() for _ in range(2))]
    buffers = [bench.put(words(i, N)) for i in range(3)]
    told: list[list[tuple[float, float, str]]] = [[], [], []]
    for stream in streams[1:]:
        stream.wait_event(bench.stream.record_event())
    for k in range(40):
        for i, stream in enumerate(streams):
            ran = lambda *times, i=i: told[i].append(times)  # noqa: E731
            bench.run("step_in_place", buffers[i], n=N, k=k, stream=stream, ran=ran)
    for i, stream in enumerate(streams):
        stream.synchronize()
        if bench.capabilities.clock is not None:
            assert len(told[i]) == 40
            assert all(start <= end for start, end, _ in told[i])
        expected = words(i, N)
        for k in range(40):
            expected = step(expected, k)
        np.testing.assert_array_equal(bench.get(buffers[i], N, stream), expected)


@pytest.mark.usefixtures("data")
def test_times_are_true(bench: Bench) -> None:
    """Work of 50 ms is measured as that, and not much more than a wait for it."""
    if bench.capabilities.clock is None:
        pytest.skip("nobody times here")
    x = bench.poison(4096)
    k = bench.busy_for(0.05, 4096)
    ratios = []
    for _ in range(5):
        told: list[tuple[float, float, str]] = []
        bench.stream.synchronize()
        begun = time.perf_counter()
        bench.run("busy", x, n=4096, k=k, ran=lambda *times, told=told: told.append(times))
        bench.stream.synchronize()
        waited = time.perf_counter() - begun
        [(start, end, _)] = told
        ratios.append((end - start) / waited)
    assert max(ratios) <= 1.001
    assert max(ratios) > 0.5  # on a busy machine, of the best try
