"""The null backend: what it counts, what it refuses, and what it can be told to fail at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import (
    ArgumentError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    ShaderError,
    UnknownDeviceError,
)
from dl4all.runtime import registry
from dl4all.runtime.device_info import Limits
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.runtime.null.faults import Call, FaultyBackend
from dl4all.runtime.protocols import Backend, Copy, Dispatch, Fill, Span, span
from dl4all.runtime.spirv import Shader, SpirvModule, load
from dl4all.testing.conformance.support.kernels import write_shaders

PUSH = bytes(8)
COUNTED = {"record_event": "event", "wait_event": "wait", "new_stream": "stream"}  # else as the call is named


@pytest.fixture
def step(tmp_path: Path) -> SpirvModule:
    """Two buffers, eight bytes of push constants."""
    write_shaders(tmp_path)
    return load(Shader("step.comp"), tmp_path)


def small(**limits: Any) -> NullBackend:
    return NullBackend(dataclasses.replace(describe(), limits=Limits(**limits)))


def bind(program: Any, buffers: Iterable[Any], groups: Any = (1, 1, 1), push: bytes = PUSH) -> Dispatch:
    """A dispatch on buffers or spans."""
    spans = [given if isinstance(given, Span) else span(given) for given in buffers]
    return Dispatch(program, spans, groups, push)


def every_call(backend: NullBackend, step: SpirvModule) -> dict[str, Callable[[], Any]]:
    """One that works, of each kind."""
    x, program, data = backend.allocate(8), backend.program(step, ()), np.zeros(4, np.uint8)
    stream, command = backend.stream, bind(program, [x, x])
    recording, event = backend.record([command], [0]), stream.record_event()
    return {
        "allocate": lambda: backend.allocate(4),
        "program": lambda: backend.program(step, ()),
        "dispatch": lambda: stream.dispatch(command),
        "copy": lambda: stream.copy(Copy(span(x, 0, 4), span(x, 4, 4))),
        "fill": lambda: stream.fill(Fill(span(x), 7)),
        "upload": lambda: stream.upload(span(x), data),
        "download": lambda: stream.download(span(x), data),
        "record": lambda: backend.record([command]),
        "replay": lambda: stream.replay(recording, {0: command}),
        "record_event": stream.record_event,
        "wait_event": lambda: stream.wait_event(event),
        "new_stream": backend.new_stream,
        "synchronize": stream.synchronize,
    }


def test_everything_is_counted(step: SpirvModule) -> None:
    backend: NullBackend = NullBackend()
    protocol: Backend = backend  # what mypy checks
    x, y = protocol.allocate(100), protocol.allocate(28, "host")
    program = protocol.program(step, ())
    protocol.stream.upload(span(x), np.ones(60, np.uint8))
    for _ in range(3):
        protocol.stream.dispatch(bind(program, [x, y], (1, 2, 3)))
    protocol.stream.copy(Copy(span(x, 8, 20), span(y, 0, 20)))
    protocol.stream.fill(Fill(span(x, 40), 3))
    recording = protocol.record([bind(program, [x, y]), Fill(span(y))], changing=[0])
    stream = protocol.new_stream()
    for _ in range(2):
        stream.replay(recording, {0: bind(program, [x, y])})
    stream.wait_event(protocol.stream.record_event())
    assert stream.record_event().synchronize(0.0)
    out = np.ones(20, np.uint8)
    protocol.stream.download(span(y), out)
    assert not out.any()
    protocol.stream.synchronize()
    for _ in range(2):
        x.free()
        stream.close()
        recording.free()
    assert backend.counts == {
        "allocate": 2, "allocate bytes": 128, "free": 1, "free bytes": 100, "program": 1, "dispatch": 3,
        "upload": 1, "upload bytes": 60, "download": 1, "download bytes": 20, "synchronize": 1,
        "copy": 1, "copy bytes": 20, "fill": 1, "fill bytes": 60, "record": 1, "replay": 2, "event": 2,
        "wait": 1, "stream": 1, "free stream": 1, "free recording": 1,
    }  # fmt: skip
    assert [buffer.nbytes for buffer in backend.buffers] == [28]
    assert [program.module for program in backend.programs] == [step]
    protocol.record([])
    protocol.close()
    released = ("", " bytes", " program", " recording", " stream")
    assert [backend.counts[f"free{what}"] for what in released] == [2, 128, 1, 2, 2]
    for left in (backend.buffers, backend.programs, backend.recordings, backend.streams):
        assert not left


def test_threads_are_counted() -> None:
    backend = NullBackend()
    buffer = backend.allocate(64)

    def work(stream: Any) -> None:
        for _ in range(2000):
            stream.fill(Fill(span(buffer)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [backend.new_stream() for _ in range(4)]))
    assert (backend.counts["fill"], backend.counts["fill bytes"]) == (8000, 512_000)


def test_a_closed_device_says_so(step: SpirvModule) -> None:
    backend = NullBackend()
    calls = every_call(backend, step)
    backend.close()
    backend.close()
    for use in calls.values():
        with pytest.raises(
            DeviceError, match=r"^\[null\] the null device is closed; what was on it is gone$"
        ):
            use()


def test_a_closed_stream_says_so(step: SpirvModule) -> None:
    backend = NullBackend()
    calls = every_call(backend, step)
    backend.stream.close()
    for name, use in calls.items():
        if name in ("allocate", "program", "record", "new_stream"):
            use()
        else:
            with pytest.raises(DeviceError, match=r"^\[null\] the stream is closed$"):
                use()


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("call", get_args(Call))
def test_each_call_fails_when_it_is_told_to(call: Any, times: int, after: int, step: SpirvModule) -> None:
    backend = FaultyBackend()
    calls = every_call(backend, step)
    assert list(calls) == list(get_args(Call))
    counted = COUNTED.get(call, call)
    before = backend.counts[counted]
    backend.fail(call, after=after, times=times, error=DeviceLostError("[null] told to"))
    failed = []
    for number in range(after + times + 2):
        for other in calls:
            if other != call:
                calls[other]()
        try:
            calls[call]()
        except DeviceLostError:
            failed.append(number)
    assert failed == list(range(after, after + times))
    assert backend.counts[counted] == before + after + 2  # a call that failed is not counted


def test_calls_that_do_not_exist_cannot_fail() -> None:
    unknown: Any = "free"
    with pytest.raises(ArgumentError, match=r"^\[null\] nothing is called 'free'; use allocate, program, "):
        FaultyBackend().fail(unknown, error=OutOfMemoryError())


def test_memory_has_an_end() -> None:
    backend = NullBackend(dataclasses.replace(describe(), memory=1000, limits=Limits(allocation_size=700)))
    with pytest.raises(OutOfMemoryError, match=r"^\[null\] 701 bytes do not fit: 0 of 1000 bytes are taken"):
        backend.allocate(701)
    first = backend.allocate(700)
    with pytest.raises(OutOfMemoryError, match=r"^\[null\] 301 bytes do not fit: 700 of 1000 bytes"):
        backend.allocate(301)
    backend.allocate(300)
    first.free()
    backend.allocate(700)


def test_programs_are_checked_against_the_limits(step: SpirvModule) -> None:
    for limits, message in (
        ({"storage_buffers": 1}, "binds 2 buffers, the device allows 1"),
        ({"push_constants": 4}, "takes 8 bytes of push constants, the device allows 4"),
        ({"workgroup_invocations": 63}, "has workgroups of"),
        ({"workgroup_size": (63, 128, 64)}, "has workgroups of"),
    ):
        with pytest.raises(ShaderError, match=message):
            small(**limits).program(step, ())


def test_dispatches_that_a_device_would_get_silently_wrong(step: SpirvModule) -> None:
    backend = small(storage_buffer_range=512, workgroup_count=(10, 20, 30), storage_alignment=64)
    program, x, freed, large = backend.program(step, ()), *map(backend.allocate, (512, 4, 640))
    elsewhere, gone = NullBackend(), backend.program(step, ())
    wrong: list[tuple[type[Exception], str, Dispatch]] = [
        (ArgumentError, "binds 2 buffers .*, got 1 and 8", bind(program, [x])),
        (ArgumentError, "binds 640 bytes, the device allows 512", bind(program, [x, large])),
        (DeviceError, "the buffer was freed", bind(program, [x, freed])),
        (DeviceError, "the buffer was freed, or belongs", bind(program, [x, elsewhere.allocate(4)])),
        (DeviceError, "the program was freed, or bel", bind(elsewhere.program(step, ()), [x, x])),
        (DeviceError, "the program was freed", bind(gone, [x, x])),
        (ArgumentError, "takes 8 bytes of push constants, got 2 and 4", bind(program, [x, x], push=PUSH[:4])),
        (ArgumentError, "span from byte 32 on, .*multiples of 64", bind(program, [x, span(x, 32)])),
        (ArgumentError, "bytes 64 to 576 do not fit", bind(program, [x, Span(x, 64, 512)])),
        (ArgumentError, r"\(11, 1, 1\) workgroups do not fit", bind(program, [x, x], (11, 1, 1))),
        (ArgumentError, r"\(1, 21, 1\) workgroups do not fit", bind(program, [x, x], (1, 21, 1))),
        (ArgumentError, r"\(1, 1, 31\) workgroups do not fit", bind(program, [x, x], (1, 1, 31))),
        (ArgumentError, r"\(-1, 1, 1\) workgroups do not fit", bind(program, [x, x], (-1, 1, 1))),
    ]
    freed.free()
    gone.free()
    for error, message, command in wrong:
        with pytest.raises(error, match=rf"^\[null\] .*{message}"):
            backend.stream.dispatch(command)
        with pytest.raises(error, match=rf"^\[null\] .*{message}"):
            backend.record([command])
    backend.stream.dispatch(bind(program, [x, span(large, 128)], (10, 20, 30)))
    assert (backend.counts["dispatch"], backend.counts["record"]) == (1, 0)


def test_copies_that_do_not_fit() -> None:
    backend = NullBackend()
    buffer, other = backend.allocate(64), backend.allocate(64)
    wrong: list[tuple[str, Copy | Fill]] = [
        ("8 bytes do not fit a target of 12", Copy(Span(buffer, 0, 8), Span(other, 0, 12))),
        ("overlap", Copy(Span(buffer, 0, 8), Span(buffer, 4, 8))),
        ("bytes 60 to 68 do not fit into a buffer of 64", Copy(Span(buffer, 0, 8), Span(other, 60, 8))),
        ("bytes -4 to 4 do not fit", Copy(Span(buffer, -4, 8), Span(other, 0, 8))),
        ("4 bytes from 2 on: both must be multiples of 4", Copy(Span(buffer, 2, 4), Span(other, 0, 4))),
        ("3 bytes from 0 on: both must be multiples of 4", Fill(Span(buffer, 0, 3))),
        ("bytes 0 to 68 do not fit", Fill(Span(buffer, 0, 68))),
        ("-1 is no 32-bit word", Fill(span(buffer), -1)),
    ]
    for message, command in wrong:
        run: Any = backend.stream.copy if isinstance(command, Copy) else backend.stream.fill
        with pytest.raises(ArgumentError, match=message):
            run(command)
        with pytest.raises(ArgumentError, match=message):
            backend.record([command])
    assert not backend.counts["copy"] + backend.counts["fill"] + backend.counts["record"]


def test_transfers_that_do_not_fit() -> None:
    backend = NullBackend()
    buffer, data = backend.allocate(8), np.zeros(5, np.uint8)
    for transfer in (backend.stream.upload, backend.stream.download):
        transfer(span(buffer, 4), data[:4])
        with pytest.raises(ArgumentError, match=r"^\[null\] 5 bytes do not fit a span of 4$"):
            transfer(span(buffer, 4), data)
        with pytest.raises(ArgumentError, match=r"^\[null\] bytes 4 to 12 do not fit into a buffer of 8$"):
            transfer(Span(buffer, 4, 8), data)
    gone = span(buffer)
    buffer.free()
    for transfer in (backend.stream.upload, backend.stream.download):
        with pytest.raises(DeviceError, match=r"^\[null\] the buffer was freed"):
            transfer(gone, data[:4])


def test_replays_that_do_not_fit(step: SpirvModule) -> None:
    backend = NullBackend()
    x, y, program, other = (
        backend.allocate(64),
        backend.allocate(64),
        *(backend.program(step, ()) for _ in "ab"),
    )
    command = bind(program, [x, x])
    recording = backend.record([command, Fill(span(x)), command], changing=[0])
    stream, may_not = backend.stream, "may not change; name it in `changing` when the commands are recorded"
    spans_only = "command 0 can change its spans and push constants only: expected a dispatch of .*, got"
    changes: list[tuple[dict[int, Any], str]] = [
        (
            {0: bind(program, [x, x], push=PUSH[:4])},
            r"\[null\] .* takes 8 bytes of push constants, got 2 and 4",
        ),
        ({0: bind(program, [x])}, r"\[null\] .* binds 2 buffers .*, got 1 and 8"),
        ({0: bind(program, [x, x], (2, 1, 1))}, rf"\[replay\] {spans_only} \(2, 1, 1\) of .*"),
        ({0: bind(other, [x, x])}, rf"\[replay\] {spans_only} \(1, 1, 1\) of .*"),
        ({0: Fill(span(x))}, rf"\[replay\] {spans_only} Fill"),
        ({1: command}, rf"\[replay\] command 1 of 3 {may_not}"),
        ({2: command}, rf"\[replay\] command 2 of 3 {may_not}"),
        ({3: command}, rf"\[replay\] command 3 of 3 {may_not}"),
        ({-1: command}, rf"\[replay\] command -1 of 3 {may_not}"),
    ]
    for change, message in changes:
        with pytest.raises(ArgumentError, match=rf"^{message}$"):
            stream.replay(recording, change)
    for index in (1, 3, -1):
        with pytest.raises(
            ArgumentError, match=rf"^\[record\] only dispatches can change; command {index} of 3 is none$"
        ):
            backend.record(recording.commands, changing=[index])
    stream.replay(recording, {0: command})
    with pytest.raises(
        DeviceError, match=r"^\[null\] the recording was freed, or belongs to another device$"
    ):
        NullBackend().stream.replay(recording)
    stream.replay(recording, {0: bind(program, [x, y])})
    y.free()
    with pytest.raises(DeviceError, match=r"^\[null\] a buffer or program that the recording uses was freed"):
        stream.replay(recording)
    with pytest.raises(DeviceError, match=r"^\[null\] the buffer was freed"):
        stream.replay(recording, {0: bind(program, [y, x])})
    stream.replay(recording, {0: command})
    x.free()
    with pytest.raises(DeviceError, match=r"^\[null\] a buffer or program that the recording uses was freed"):
        stream.replay(recording)
    recording.free()
    with pytest.raises(DeviceError, match=r"^\[null\] the recording was freed"):
        stream.replay(recording)
    assert backend.counts["replay"] == 3


def test_memory_that_the_host_sees() -> None:
    backend = NullBackend()
    host, device = backend.allocate(64, "host"), backend.allocate(64)
    assert host.mapped is not None
    assert host.mapped.nbytes == 64
    assert host.mapped is host.mapped
    assert device.mapped is None
    unknown: Any = "attic"
    with pytest.raises(ArgumentError, match=r"^\[null\] no memory of kind 'attic'; use device or host$"):
        backend.allocate(64, unknown)
    assert backend.memory() == (backend.info.memory - 128, backend.info.memory)


@pytest.mark.parametrize("name", ["null", "null:0"])
def test_it_can_be_asked_for_and_is_never_offered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dl.device(name).name == "null:0"
    assert dl.device(name) is dl.device("null")
    assert not any("null" in device for info in dl.devices() for device in info.names)
    assert registry.auto().name != "null:0"
    with pytest.raises(UnknownDeviceError) as caught:
        dl.device("null:1")
    assert "null:0" not in str(caught.value)
    monkeypatch.setenv("DL4ALL_DEVICE", name)
    assert registry.auto() == ("null:0", "DL4ALL_DEVICE says so")


def test_what_is_on_it_reads_as_zeros() -> None:
    x = dl.tensor([1.0, 2.0], device="null")
    assert (x + x).tolist() == [0.0, 0.0]
