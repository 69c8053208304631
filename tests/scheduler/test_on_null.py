"""Launches, memory that runs out, and leaks, on a device that counts and needs no driver."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceLostError, OutOfMemoryError, ShaderError
from dl4all.runtime import spirv
from dl4all.runtime.device_info import Limits
from dl4all.runtime.null.backend import describe
from dl4all.runtime.null.faults import FaultyBackend
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.testing.conformance.support.kernels import write_shaders

PUSH = struct.pack("<II", 1, 1)
STEP = Shader("step.comp")


@pytest.fixture(autouse=True)
def shaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches find the conformance suite's kernels."""
    write_shaders(tmp_path)
    load = spirv.load
    monkeypatch.setattr(spirv, "load", lambda shader: load(shader, tmp_path))


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory: uploads are counted here."""


def make(memory: int = 2**40, **limits: Any) -> tuple[FaultyBackend, Device]:
    backend = FaultyBackend(dataclasses.replace(describe(), memory=memory, limits=Limits(**limits)))
    return backend, Device.of_backend("null:0", backend)


def test_a_launch_reaches_the_device_once() -> None:
    backend, place = make()
    x = place.allocate(1000)
    for _ in range(3):
        place.launch(Launch(STEP, (4, 1, 1), PUSH), x, x)
    assert (backend.counts["program"], backend.counts["dispatch"]) == (1, 3)
    place.launch(Launch(STEP, (4, 0, 1), PUSH), x, x)
    assert backend.counts["dispatch"] == 3


@pytest.mark.parametrize("groups", [(11, 1, 1), (1, 21, 1), (1, 1, 31)])
def test_grids_past_the_limit_are_refused(groups: tuple[int, int, int]) -> None:
    backend, place = make(workgroup_count=(10, 20, 30))
    x = place.allocate(1000)
    with pytest.raises(ArgumentError, match=r"workgroups are more than null:0 can start .*\(10, 20, 30"):
        place.launch(Launch(STEP, groups, PUSH), x, x)
    place.launch(Launch(STEP, (10, 20, 30), PUSH), x, x)
    assert backend.counts["dispatch"] == 1


def test_operands_past_the_limit_are_refused() -> None:
    backend, place = make(storage_buffer_range=4096)
    x, y = place.allocate(4096), place.allocate(4097)
    place.launch(Launch(STEP, (1, 1, 1), PUSH), x, x)
    with pytest.raises(ArgumentError, match=r"an operand of 4097 bytes is more than null:0 can bind at once"):
        place.launch(Launch(STEP, (1, 1, 1), PUSH), x, y)
    assert backend.counts["dispatch"] == 1


def test_programs_past_the_limit_are_refused() -> None:
    _, place = make()
    storages = [place.allocate(4) for _ in range(8)]
    with pytest.raises(ShaderError, match=r"^\[eight.comp\] binds 8 buffers, the device allows 4 "):
        place.launch(Launch(Shader("eight.comp"), (1, 1, 1), PUSH), *storages)


def test_transfers_are_counted_in_bytes() -> None:
    backend, place = make()
    storage = place.upload(np.ones((3, 5), np.float32))
    place.download(storage, np.ones(15, np.float32))
    empty = place.upload(np.ones((0, 5), np.float32))
    place.download(empty, np.ones(0, np.float32))
    assert (backend.counts["upload"], backend.counts["upload bytes"]) == (1, 60)
    assert (backend.counts["download"], backend.counts["download bytes"]) == (1, 60)


def test_memory_is_reused() -> None:
    backend, place = make()
    for _ in range(100):
        place.allocate(1000)
    assert backend.counts["allocate"] == 1


def test_waiting_buffers_go_back_before_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_ALLOCATOR", "pool")  # a buffer for each storage
    backend, place = make(memory=10_000)
    kept = place.allocate(4000)
    del kept
    large = place.allocate(8000)  # fits only without the one that waits
    assert (backend.counts["allocate"], backend.counts["free"], backend.counts["synchronize"]) == (2, 1, 1)
    with pytest.raises(OutOfMemoryError, match=r"3\.9 KiB do not fit on null:0: .* \(4096 bytes are more"):
        place.allocate(4000)
    assert backend.counts["free"] == 1  # what is in use stays
    del large
    assert place.allocate(4000).nbytes == 4000


def test_one_refusal_is_tried_again_and_two_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL4ALL_ALLOCATOR", "pool")  # a buffer for each storage
    backend, place = make()
    error = OutOfMemoryError("[null] told to")
    place.allocate(1000)
    backend.fail("allocate", error=error)
    kept = place.allocate(3000)
    assert (backend.counts["allocate"], backend.counts["free"]) == (2, 1)
    backend.fail("allocate", error=error)
    with pytest.raises(OutOfMemoryError, match="told to"):  # nothing waits that could be given back
        place.allocate(9000)
    place.allocate(1000)
    backend.fail("allocate", times=2, error=error)
    with pytest.raises(OutOfMemoryError, match="told to"):
        place.allocate(9000)
    assert place.pool.stats.allocated == kept.nbytes
    assert place.allocate(9000).nbytes == 9000


@pytest.mark.parametrize("call", ["upload", "dispatch", "program"])
def test_what_fails_keeps_no_memory(call: Any) -> None:
    backend, place = make()
    backend.fail(call, error=DeviceLostError("[null] told to"))

    def work() -> str:
        """The error's message: the error itself keeps the frames alive that it went through."""
        try:
            x = place.upload(np.ones(10, np.float32))
            place.launch(Launch(STEP, (1, 1, 1), PUSH), x, place.allocate(40))
        except DeviceLostError as error:
            return str(error)
        return ""

    assert work() == "[null] told to"
    assert place.pool.stats.allocated == 0
    assert work() == ""
    assert place.pool.stats.allocated == 0
    place.pool.trim()
    assert not backend.buffers
    assert backend.counts["allocate bytes"] == backend.counts["free bytes"]
