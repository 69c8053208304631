"""Mistakes are refused with a typed error, never with a crash, and what was right goes on.

The last of the suite's files: a backend that checks nothing may not outlive it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceError, Dl4allError
from dl4all.runtime.protocols import Copy, Dispatch, Event, Fill, Span, Stream, span
from dl4all.testing.conformance.harness import Bench, Open
from dl4all.testing.conformance.support.kernels import pushed, step, words

N = 64
Mistake = Callable[[Bench, Any, Any], Dispatch]


def step_of(bench: Bench, spans: list[Span], push: bytes = pushed(N, 1), groups: Any = (1, 1, 1)) -> Dispatch:
    return Dispatch(bench.kernels.program("step"), spans, groups, push)


MISTAKES: dict[str, Mistake] = {
    "too few spans": lambda b, x, y: step_of(b, [span(x)]),
    "too many spans": lambda b, x, y: step_of(b, [span(x), span(y), span(x)]),
    "no spans": lambda b, x, y: step_of(b, []),
    "no push constants": lambda b, x, y: step_of(b, [span(x), span(y)], b""),
    "too few push constants": lambda b, x, y: step_of(b, [span(x), span(y)], b"\1\0\0\0"),
    "too many push constants": lambda b, x, y: step_of(b, [span(x), span(y)], pushed(N, 1) + b"\1\0\0\0"),
    "a negative grid": lambda b, x, y: step_of(b, [span(x), span(y)], groups=(-1, 1, 1)),
}


def recorded_or_not(bench: Bench, command: Dispatch, recorded: bool) -> None:
    if recorded:
        bench.stream.replay(bench.record([command]))
    else:
        bench.stream.dispatch(command)
    bench.stream.synchronize()


def works_on(bench: Bench, x: Any, y: Any) -> None:
    bench.run("step", x, y, n=N, k=5)
    if bench.capabilities.data:
        bench.expect(y, step(words(1, N), 5))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("recorded", [False, True], ids=["at once", "recorded"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_dispatches_that_do_not_fit_the_program(bench: Bench, mistake: str, recorded: bool) -> None:
    x, y = bench.put(words(1, N)), bench.poison(N)
    with pytest.raises((ArgumentError, DeviceError)):
        recorded_or_not(bench, MISTAKES[mistake](bench, x, y), recorded)
    works_on(bench, x, y)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("recorded", [False, True], ids=["at once", "recorded"])
def test_spans_in_places_that_cannot_be_bound(bench: Bench, recorded: bool) -> None:
    """Whole buffers only, or at multiples of the alignment."""
    if 0 < bench.unit <= 1:
        pytest.skip("any place can be bound here")
    x, y, large = bench.put(words(1, N)), bench.poison(N), bench.poison(8 * N + 4096)
    for offset in (4,) if bench.unit else (4, 256, 4096):
        piece = span(large, offset, 4 * N)
        for spans in ([piece, span(y)], [span(x), piece]):
            with pytest.raises(ArgumentError):
                recorded_or_not(bench, step_of(bench, spans), recorded)
    works_on(bench, x, y)


# What was freed


def test_transfers_with_a_freed_buffer(bench: Bench) -> None:
    gone, there = bench.allocate(4 * N), bench.put(words(1, N))
    whole, other = span(gone), span(there)
    bench.stream.synchronize()
    gone.free()
    data = np.zeros(4 * N, np.uint8)
    uses: list[Callable[[], object]] = [
        lambda: bench.stream.upload(whole, data),
        lambda: bench.stream.download(whole, data),
        lambda: bench.stream.copy(Copy(whole, Span(there, 0, whole.nbytes))),
        lambda: bench.stream.copy(Copy(Span(there, 0, whole.nbytes), whole)),
        lambda: bench.stream.fill(Fill(whole, 1)),
        lambda: bench.stream.replay(bench.record([Fill(other, 1), Fill(whole, 1)])),
    ]
    for use in uses:
        with pytest.raises(DeviceError):
            use()
    bench.stream.synchronize()
    if bench.capabilities.data:
        bench.expect(there, words(1, N))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("recorded", [False, True], ids=["at once", "recorded"])
def test_dispatches_with_a_freed_buffer(bench: Bench, recorded: bool) -> None:
    x, y, gone = bench.put(words(1, N)), bench.poison(N), bench.poison(N)
    bench.run("step", x, gone, n=N, k=1)  # what a backend keeps of it must not serve again
    whole = span(gone)
    bench.stream.synchronize()
    gone.free()
    for spans in ([span(x), whole], [whole, span(y)]):
        with pytest.raises(DeviceError):
            recorded_or_not(bench, step_of(bench, spans), recorded)
    works_on(bench, x, y)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("recorded", [False, True], ids=["at once", "recorded"])
def test_dispatches_of_a_freed_program(bench: Bench, recorded: bool) -> None:
    x, y = bench.put(words(1, N)), bench.poison(N)
    program = bench.backend.program(bench.kernels.module("step"), ())
    bench.stream.dispatch(Dispatch(program, [span(x), span(y)], (1, 1, 1), pushed(N, 1)))
    bench.stream.synchronize()
    program.free()
    with pytest.raises(DeviceError):
        recorded_or_not(bench, Dispatch(program, [span(x), span(y)], (1, 1, 1), pushed(N, 1)), recorded)
    works_on(bench, x, y)


def test_replays_of_a_freed_recording(bench: Bench) -> None:
    x = bench.poison(N)
    recording = bench.record([Fill(span(x), 7)])
    bench.stream.replay(recording)
    bench.stream.synchronize()
    recording.free()
    with pytest.raises(DeviceError):
        bench.stream.replay(recording)


def test_replays_with_a_freed_buffer(bench: Bench) -> None:
    x, y = bench.poison(N), bench.poison(N)
    recording = bench.record([Fill(span(x), 7), Fill(span(y), 8)])
    bench.stream.replay(recording)
    bench.stream.synchronize()
    y.free()
    with pytest.raises(DeviceError):
        bench.stream.replay(recording)


def test_recordings_with_mistakes_leave_nothing(bench: Bench) -> None:
    """A command that cannot be recorded, behind one that can."""
    x = bench.put(words(1, N))
    for wrong in (Copy(span(x, 0, 8), span(x, 16, 12)), Copy(span(x, 0, 8), span(x, 4, 8))):
        with pytest.raises(ArgumentError):
            bench.backend.record([Fill(span(x, 0, 4), 1), wrong])
    bench.stream.synchronize()
    if bench.capabilities.data:
        bench.expect(x, words(1, N))


def test_sizes_that_are_none(bench: Bench) -> None:
    for nbytes in (0, -1):
        with pytest.raises(Dl4allError):
            bench.backend.allocate(nbytes)


# What was closed


Uses = dict[str, Callable[[], object]]


def refused(bench: Bench, uses: Uses) -> None:
    """Each raises DeviceError; or none, on a device that has nothing to release."""
    done = []
    for name, use in uses.items():
        with contextlib.suppress(DeviceError):
            use()
            done.append(name)
    if bench.capabilities.programs:
        assert not done, f"not refused: {', '.join(done)}"


def commands_of(stream: Stream, x: Any, recording: Any, event: Event) -> Uses:
    """Everything that can be asked of a stream, on a buffer."""
    data = np.zeros(4, np.uint8)
    return {
        "fill": lambda: stream.fill(Fill(span(x), 9)),
        "copy": lambda: stream.copy(Copy(span(x, 0, 4), span(x, 8, 4))),
        "upload": lambda: stream.upload(span(x), data),
        "download": lambda: stream.download(span(x), data),
        "replay": lambda: stream.replay(recording),
        "wait_event": lambda: stream.wait_event(event),
        "record_event": stream.record_event,
    }


def test_a_closed_stream_says_so(bench: Bench) -> None:
    stream, x = bench.backend.new_stream(), bench.poison(N)
    stream.wait_event(bench.stream.record_event())
    stream.fill(Fill(span(x), 7))
    recording = bench.record([Fill(span(x), 8)])
    stream.close()
    stream.close()
    refused(bench, commands_of(stream, x, recording, bench.stream.record_event()))
    if bench.capabilities.data and bench.capabilities.programs:
        bench.expect(x, np.full(N, 7, np.uint32))


def test_a_closed_device_says_so(another: Open) -> None:
    bench = another()
    x, y, programs = bench.put(words(1, N)), bench.poison(N), bench.capabilities.programs
    if programs:
        bench.run("step", x, y, n=N, k=1)
    stream = bench.backend.new_stream()
    recording, event = bench.record([Fill(span(x), 3)]), stream.record_event()
    bench.backend.close()
    for place in (bench.stream, stream):
        refused(bench, commands_of(place, x, recording, event))
    uses: Uses = {
        "allocate": lambda: bench.backend.allocate(256),
        "allocate on the host": lambda: bench.backend.allocate(256, "host"),
        "new_stream": bench.backend.new_stream,
        "record": lambda: bench.backend.record([], ()),
    }
    if programs:
        uses["program"] = lambda: bench.backend.program(bench.kernels.module("step"), ())
        uses["dispatch"] = lambda: bench.run("step", x, y, n=N, k=1)
        uses["dispatch in a stream"] = lambda: bench.run("step", x, y, n=N, k=1, stream=stream)
    refused(bench, uses)
    bench.backend.close()


def test_buffers_of_another_device_are_refused(bench: Bench, another: Open) -> None:
    """They look alike, and their memory is not there."""
    if not bench.capabilities.programs:
        pytest.skip("host memory is the same everywhere")
    other = another()
    x, y = bench.put(words(1, N)), other.put(words(2, N))
    whole = span(y)
    refused(
        bench,
        {
            "dispatch": lambda: bench.run("step", x, y, n=N, k=1),
            "fill": lambda: bench.stream.fill(Fill(whole, 1)),
            "upload": lambda: bench.stream.upload(whole, np.zeros(4, np.uint8)),
            "download": lambda: bench.stream.download(whole, np.zeros(4, np.uint8)),
            "record": lambda: bench.backend.record([Fill(whole, 1)]),
        },
    )
    if bench.capabilities.data:
        bench.expect(x, words(1, N))
        other.expect(y, words(2, N))
