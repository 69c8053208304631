"""Copies in host memory. NumPy has always finished when it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.completed_event import FINISHED, Finished
from dl4all.runtime.cpu.recording import CpuRecording, bytes_of, check, refuse_programs, run
from dl4all.runtime.protocols import Bytes, Copy, Dispatch, Fill, Ran, Span
from dl4all.runtime.validation import check_changes


class CpuStream:
    def __init__(self) -> None:
        self._closed = False

    def dispatch(self, command: Dispatch, ran: Ran | None = None) -> NoReturn:
        refuse_programs()

    def copy(self, command: Copy) -> None:
        self._run(command)

    def fill(self, command: Fill) -> None:
        self._run(command)

    def _run(self, command: Copy | Fill) -> None:
        self._check_open()
        check(command)
        run(command)

    def upload(self, target: Span, data: Bytes) -> None:
        self._check_open()
        memory = bytes_of(target)
        _check_fits(data, memory)
        memory[: data.size] = data

    def download(self, source: Span, out: Bytes) -> None:
        self._check_open()
        memory = bytes_of(source)
        _check_fits(out, memory)
        out[:] = memory[: out.size]

    def replay(self, recording: CpuRecording, changes: Mapping[int, Dispatch] | None = None) -> None:
        self._check_open()
        check_changes(recording.commands, (), changes or {})
        recording.replay()

    def record_event(self) -> Finished:
        self._check_open()
        return FINISHED

    def wait_event(self, event: Finished) -> None:
        """Nothing is ever pending."""
        self._check_open()

    def synchronize(self) -> None:
        """Nothing is ever pending."""
        self._check_open()

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise DeviceError("[cpu] the stream is closed")


def _check_fits(data: Bytes, memory: Bytes) -> None:
    if data.size > memory.size:
        raise ArgumentError(f"[cpu] {data.size} bytes do not fit a span of {memory.size}")
