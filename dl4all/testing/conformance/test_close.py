"""The end of streams and devices, and several devices at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl4all.runtime.protocols import Copy, Fill, span
from dl4all.testing.conformance.harness import Bench, Open
from dl4all.testing.conformance.support.kernels import bytes_of, step, words

N = 64


# Streams


def test_closing_a_stream_waits_for_it(bench: Bench) -> None:
    stream, x = bench.backend.new_stream(), bench.poison(1 << 16)
    stream.wait_event(bench.stream.record_event())
    for word in range(100):
        stream.fill(Fill(span(x), word))
    event = stream.record_event()
    for word in range(100, 200):
        stream.fill(Fill(span(x), word))
    stream.close()
    assert event.query()
    if bench.capabilities.data:
        bench.expect(x, np.full(1 << 16, 199, np.uint32))


# Devices


def test_what_outlives_its_device_does_no_harm(another: Open) -> None:
    bench = another()
    x, stream = bench.put(words(1, N)), bench.backend.new_stream()
    recording = bench.record([Fill(span(x), 3)])
    bench.stream.replay(recording)
    programs = [bench.kernels.program("step")] if bench.capabilities.programs else []
    bench.backend.close()
    stream.close()
    recording.free()
    for program in programs:
        program.free()
    x.free()
    x.free()
    bench.backend.close()


def test_closing_releases_what_is_in_use(another: Open) -> None:
    """Work is pending in several streams, with events between them, and nothing was freed."""
    bench = another()
    buffers = [bench.poison(4096) for _ in range(20)]
    streams = [bench.stream, *(bench.backend.new_stream() for _ in range(3))]
    recording = bench.record([Fill(span(buffers[0], 0, 64), 3), Fill(span(buffers[1], 0, 64), 4)])
    for i in range(70):
        stream, x, y = streams[i % 4], buffers[i % 20], buffers[(i + 1) % 20]
        if bench.capabilities.programs:
            bench.run("step", x, y, n=4096, k=1, stream=stream)
        else:
            stream.copy(Copy(span(x), span(y)))
        streams[(i + 1) % 4].wait_event(stream.record_event())
        if i % 10 == 0:
            stream.replay(recording)
    bench.stream.upload(span(buffers[0]), np.zeros(16, np.uint8))
    bench.backend.close()


def test_a_device_can_be_opened_again(another: Open) -> None:
    for seed in range(3):
        bench = another()
        x = bench.put(words(seed, N))
        if bench.capabilities.data:
            bench.expect(x, words(seed, N))
        bench.backend.close()


@pytest.mark.usefixtures("data")
def test_one_device_opened_several_times(bench: Bench, another: Open) -> None:
    """Commands in turn; neither disturbs the other, nor does the end of one."""
    opened = [bench, another(), another()]
    buffers: list[Any] = [(one.put(words(i, N)), one.poison(N)) for i, one in enumerate(opened)]
    expected = [words(i, N) for i in range(3)]
    for k in range(50):
        for i, (one, (x, y)) in enumerate(zip(opened, buffers, strict=True)):
            if one.capabilities.programs:
                one.run("step", x, y, n=N, k=k + i)
                expected[i] = step(expected[i], k + i)
            else:
                one.stream.fill(Fill(span(x, 4 * k, 4), k + i))
                one.stream.copy(Copy(span(x, 0, 4 * N), span(y, 0, 4 * N)))
                expected[i][k] = k + i
            one.stream.copy(Copy(span(y, 0, 4 * N), span(x, 0, 4 * N)))
    for i in (2, 0, 1):
        opened[i].expect(buffers[i][0], expected[i])
        if i:
            opened[i].backend.close()
    bench.stream.upload(span(buffers[0][0]), bytes_of(words(9, N)))
    bench.expect(buffers[0][0], words(9, N))
