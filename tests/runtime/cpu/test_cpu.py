"""The CPU as a backend: memory and copies, and no programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dl4all.errors import ArgumentError, DeviceError, OutOfMemoryError
from dl4all.runtime.cpu import heap
from dl4all.runtime.cpu.backend import CpuBackend
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.protocols import Backend, Copy, Dispatch, Fill, Span, span


def test_it_runs_no_programs() -> None:
    backend: Backend = CpuBackend()  # what mypy checks
    nothing: Any = None
    command = Dispatch(nothing, [], (1, 1, 1))
    uses: tuple[Callable[[], Any], ...] = (
        lambda: backend.program(nothing, ()),
        lambda: backend.stream.dispatch(command),
        lambda: backend.record([command]),
    )
    for use in uses:
        with pytest.raises(
            DeviceError, match=r"^\[cpu\] the CPU runs no SPIR-V; ops run their NumPy reference"
        ):
            use()
    assert not backend.capabilities.programs
    backend.close()


def test_an_array_can_be_a_buffer() -> None:
    backend, array = CpuBackend(), np.arange(5, dtype=np.uint8)
    buffer = CpuBuffer(array)
    assert buffer.mapped is array
    backend.stream.fill(Fill(span(buffer), 0x04030201))
    assert array.tolist() == [1, 2, 3, 4, 1]  # the pattern ends where the buffer does
    backend.stream.copy(Copy(Span(buffer, 0, 1), Span(buffer, 4, 1)))
    backend.stream.upload(span(buffer), np.full(2, 9, np.uint8))
    assert array.tolist() == [9, 9, 3, 4, 1]


@pytest.mark.parametrize(
    ("span_of", "error"),
    [
        (lambda buffer: Span(buffer, 0, 12), ArgumentError),
        (lambda buffer: Span(buffer, -4, 4), ArgumentError),
        (lambda buffer: Span(buffer, 4, -4), ArgumentError),
        (lambda buffer: Span(freed(), 0, 4), DeviceError),
    ],
)
def test_spans_of_what_is_not_there(span_of: Callable[[CpuBuffer], Span], error: type[Exception]) -> None:
    stream, buffer, data = CpuBackend().stream, CpuBuffer(np.zeros(8, np.uint8)), np.zeros(4, np.uint8)
    wrong = span_of(buffer)
    uses: tuple[Callable[[], Any], ...] = (
        lambda: stream.upload(wrong, data),
        lambda: stream.download(wrong, data),
        lambda: stream.fill(Fill(wrong)),
        lambda: stream.copy(Copy(wrong, Span(CpuBuffer(np.zeros(12, np.uint8)), 0, wrong.nbytes))),
        lambda: CpuBackend().record([Fill(wrong)]),
    )
    for use in uses:
        with pytest.raises(error, match=r"^\[cpu\] "):
            use()


def freed() -> CpuBuffer:
    buffer = CpuBuffer.empty(8)
    buffer.free()
    return buffer


def test_what_does_not_fit() -> None:
    backend = CpuBackend()
    for nbytes in (backend.info.memory + 1, 2**62):
        with pytest.raises(
            OutOfMemoryError, match=rf"^\[cpu\] {nbytes} bytes do not fit into .*smaller batch$"
        ):
            backend.allocate(nbytes)
    free, total = backend.memory()
    assert 0 < free <= total == backend.info.memory


def test_recordings_and_streams_that_are_gone() -> None:
    backend = CpuBackend()
    buffer, stream = backend.allocate(8), backend.new_stream()
    recording = backend.record([Fill(span(buffer), 1)])
    with pytest.raises(
        ArgumentError, match=r"^\[record\] only dispatches can change; command 0 of 1 is none"
    ):
        backend.record([Fill(span(buffer), 1)], changing=[0])
    with pytest.raises(ArgumentError, match=r"^\[replay\] command 0 of 1 may not change"):
        stream.replay(recording, {0: Dispatch(None, [], (1, 1, 1))})
    recording.free()
    with pytest.raises(DeviceError, match=r"^\[cpu\] the recording was freed$"):
        stream.replay(recording)
    stream.close()
    with pytest.raises(DeviceError, match=r"^\[cpu\] the stream is closed$"):
        stream.synchronize()


def test_freed_memory_is_kept_for_the_next_array(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource", reason="page faults are counted on Unix")
    for name in heap.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    if not heap.keep_freed():
        pytest.skip("this C library has no such thresholds")

    def faults() -> int:
        before: int = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        kept = [np.ones(2**21, np.uint8) for _ in range(8)]
        assert len(kept) == 8
        return int(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt) - before

    faults()
    assert min(faults() for _ in range(3)) < 64  # of 4096 pages
    assert heap.give_back() > 0


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not heap.keep_freed()
