"""Commands in order: one submission, waited for, per command.

Kompute records no barrier between two dispatches of one sequence and its Python package has no
way to ask for one, so the only dependency that holds on every driver and costs no copy is the end of a
submission (docs/decisions/0002-kompute-ordering.md). Kompute waits with Python's global lock held, so that
streams take turns whatever they do; they share the device's launches, under its lock.

Dispatches are timed by the host's clock around the submission. Kompute's own timestamps are not used: it
writes them into a query pool that it never resets, which the specification forbids.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dl4all.errors import ArgumentError, DeviceError
from dl4all.runtime.completed_event import FINISHED, Finished
from dl4all.runtime.kompute.copies import check_span, through_host
from dl4all.runtime.kompute.library import evaluate
from dl4all.runtime.kompute.recording import KomputeRecording
from dl4all.runtime.protocols import Bytes, Copy, Dispatch, Fill, Ran, Span

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend


class KomputeStream:
    def __init__(self, backend: KomputeBackend) -> None:
        self._backend = backend
        backend.streams.add(self)

    def dispatch(self, command: Dispatch, ran: Ran | None = None) -> None:
        with self._backend.lock:
            self._check_open()
            launch = self._backend.launches.find(command)
            if 0 in command.groups:  # Kompute would take it for something else
                return
            sequence = launch.sequence(command.push)
            start = time.perf_counter()
            evaluate(sequence, f"running {command.program.module.name}")
            end = time.perf_counter()
        if ran is not None:
            ran(start, end, "host")

    def copy(self, command: Copy) -> None:
        self._run(command)

    def fill(self, command: Fill) -> None:
        self._run(command)

    def _run(self, command: Copy | Fill) -> None:
        with self._backend.lock:
            self._check_open()
            dispatch = self._backend.copies.dispatch(command)
            if not command.target.nbytes:
                return
            if dispatch is None:
                through_host(command)
            else:
                self.dispatch(dispatch)

    def upload(self, target: Span, data: Bytes) -> None:
        with self._backend.lock:
            self._check(target, data)
            if data.size:
                buffer, offset, nbytes = target
                buffer.write(offset, data, whole=nbytes == buffer.nbytes)

    def download(self, source: Span, out: Bytes) -> None:
        with self._backend.lock:
            self._check(source, out)
            if out.size:
                out[:] = source.buffer.read(source.offset, out.size)

    def replay(self, recording: KomputeRecording, changes: Mapping[int, Dispatch] | None = None) -> None:
        with self._backend.lock:
            self._check_open()
            if recording not in self._backend.recordings:
                raise DeviceError(
                    "[kompute] the recording or something that it uses was freed, or it belongs to another "
                    "device"
                )
            recording.replay(changes)

    def record_event(self) -> Finished:
        self._check_open()
        return FINISHED

    def wait_event(self, event: Finished) -> None:
        """Nothing to wait for: every command was waited for when it was submitted."""
        self._check_open()

    def synchronize(self) -> None:
        """Nothing to wait for: every command was waited for when it was submitted."""
        self._check_open()

    def close(self) -> None:
        self._backend.streams.discard(self)

    def _check_open(self) -> None:
        if self not in self._backend.streams:
            self._backend.check_open()
            raise DeviceError("[kompute] the stream is closed")

    def _check(self, span: Span, data: Bytes) -> None:
        self._check_open()
        check_span(self._backend, span)
        if data.size > span.nbytes:
            raise ArgumentError(f"[kompute] {data.size} bytes do not fit a span of {span.nbytes}")
