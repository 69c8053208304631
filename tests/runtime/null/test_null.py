"""The null backend: what it counts, what it refuses, and what it can be told to fail at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from dl4all.runtime.backend import Backend
from dl4all.runtime.info import Limits
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.runtime.spirv import Module, Shader, load
from tests.conformance.kernels import write_shaders

PUSH = bytes(8)


@pytest.fixture
def step(tmp_path: Path) -> Module:
    """Two buffers, eight bytes of push constants."""
    write_shaders(tmp_path)
    return load(Shader("step.comp"), tmp_path)


def small(**limits: Any) -> NullBackend:
    return NullBackend(dataclasses.replace(describe(), limits=Limits(**limits)))


def test_everything_is_counted(step: Module) -> None:
    backend: NullBackend = NullBackend()
    protocol: Backend = backend  # what mypy checks
    x, y = protocol.allocate(100), protocol.allocate(28)
    program = protocol.program(step, ())
    protocol.stream.upload(x, np.ones(60, np.uint8))
    for _ in range(3):
        protocol.stream.dispatch(program, [x, y], (1, 2, 3), PUSH)
    out = np.ones(20, np.uint8)
    protocol.stream.download(y, out)
    assert not out.any()
    protocol.stream.synchronize()
    x.free()
    x.free()
    assert backend.counts == {
        "allocate": 2, "allocate bytes": 128, "free": 1, "free bytes": 100, "program": 1, "dispatch": 3,
        "upload": 1, "upload bytes": 60, "download": 1, "download bytes": 20, "synchronize": 1,
    }  # fmt: skip
    assert [buffer.nbytes for buffer in backend.buffers] == [28]
    assert [program.module for program in backend.programs] == [step]
    protocol.close()
    assert (backend.counts["free"], backend.counts["free bytes"], backend.counts["free program"]) == (
        2,
        128,
        1,
    )
    assert not backend.buffers
    assert not backend.programs


def test_a_closed_device_says_so(step: Module) -> None:
    backend = NullBackend()
    x, program, data = backend.allocate(4), backend.program(step, ()), np.zeros(4, np.uint8)
    backend.close()
    backend.close()
    uses: tuple[Callable[[], Any], ...] = (
        lambda: backend.allocate(4),
        lambda: backend.program(step, ()),
        lambda: backend.stream.dispatch(program, [x, x], (1, 1, 1), PUSH),
        lambda: backend.stream.upload(x, data),
        lambda: backend.stream.download(x, data),
        backend.stream.synchronize,
    )
    for use in uses:
        with pytest.raises(
            DeviceError, match=r"^\[null\] the null device is closed; what was on it is gone$"
        ):
            use()


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("call", ["allocate", "program", "dispatch", "upload", "download", "synchronize"])
def test_each_call_fails_when_it_is_told_to(call: Any, times: int, after: int, step: Module) -> None:
    backend = NullBackend()
    x, program, data = backend.allocate(4), backend.program(step, ()), np.zeros(4, np.uint8)
    calls: dict[str, Callable[[], Any]] = {
        "allocate": lambda: backend.allocate(4),
        "program": lambda: backend.program(step, ()),
        "dispatch": lambda: backend.stream.dispatch(program, [x, x], (1, 1, 1), PUSH),
        "upload": lambda: backend.stream.upload(x, data),
        "download": lambda: backend.stream.download(x, data),
        "synchronize": backend.stream.synchronize,
    }
    before = backend.counts[call]
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
    assert backend.counts[call] == before + after + 2  # a call that failed is not counted


def test_calls_that_do_not_exist_cannot_fail() -> None:
    unknown: Any = "free"
    with pytest.raises(ArgumentError, match=r"^\[null\] nothing is called 'free'; use allocate, program, "):
        NullBackend().fail(unknown, error=OutOfMemoryError())


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


def test_programs_are_checked_against_the_limits(step: Module) -> None:
    for limits, message in (
        ({"storage_buffers": 1}, "binds 2 buffers, the device allows 1"),
        ({"push_constants": 4}, "takes 8 bytes of push constants, the device allows 4"),
        ({"workgroup_invocations": 63}, "has workgroups of"),
        ({"workgroup_size": (63, 128, 64)}, "has workgroups of"),
    ):
        with pytest.raises(ShaderError, match=message):
            small(**limits).program(step, ())


def test_dispatches_that_a_device_would_get_silently_wrong(step: Module) -> None:
    backend = small(storage_buffer_range=512, workgroup_count=(10, 20, 30))
    program, x, freed, large = backend.program(step, ()), *map(backend.allocate, (512, 4, 513))
    elsewhere = NullBackend()
    freed.free()
    wrong: list[tuple[str, Any, Any, Any, bytes]] = [
        ("binds 2 buffers, got 1", program, [x], (1, 1, 1), PUSH),
        ("binds 513 bytes, the device allows 512", program, [x, large], (1, 1, 1), PUSH),
        ("the buffer was freed", program, [x, freed], (1, 1, 1), PUSH),
        ("the buffer was freed, or belongs to another", program, [x, elsewhere.allocate(4)], (1, 1, 1), PUSH),
        ("was freed, or belongs to another", elsewhere.program(step, ()), [x, x], (1, 1, 1), PUSH),
        ("takes 8 bytes of push constants, got 4", program, [x, x], (1, 1, 1), PUSH[:4]),
        (r"\(11, 1, 1\) workgroups do not fit", program, [x, x], (11, 1, 1), PUSH),
        (r"\(1, 21, 1\) workgroups do not fit", program, [x, x], (1, 21, 1), PUSH),
        (r"\(1, 1, 31\) workgroups do not fit", program, [x, x], (1, 1, 31), PUSH),
        (r"\(-1, 1, 1\) workgroups do not fit", program, [x, x], (-1, 1, 1), PUSH),
    ]
    for message, *arguments in wrong:
        with pytest.raises(DeviceError, match=rf"^\[null\] .*{message}"):
            backend.stream.dispatch(*arguments)
    backend.stream.dispatch(program, [x, x], (10, 20, 30), PUSH)
    assert backend.counts["dispatch"] == 1


def test_copies_that_do_not_fit() -> None:
    backend = NullBackend()
    buffer, data = backend.allocate(4), np.zeros(5, np.uint8)
    for copy in (backend.stream.upload, backend.stream.download):
        copy(buffer, data[:4])
        with pytest.raises(DeviceError, match=r"^\[null\] 5 bytes do not fit into a buffer of 4$"):
            copy(buffer, data)
    buffer.free()
    for copy in (backend.stream.upload, backend.stream.download):
        with pytest.raises(DeviceError, match=r"^\[null\] the buffer was freed"):
            copy(buffer, data[:4])


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
