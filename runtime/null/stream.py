"""Commands that are checked, counted and not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dl4all.errors import DeviceError
from dl4all.runtime.completed_event import FINISHED, Finished
from dl4all.runtime.null.recording import NullRecording
from dl4all.runtime.protocols import Bytes, Copy, Dispatch, Fill, Ran, Span
from dl4all.runtime.validation import check_command, check_dispatch, check_transfer

if TYPE_CHECKING:
    from dl4all.runtime.null.backend import NullBackend


class NullStream:
    def __init__(self, backend: NullBackend) -> None:
        self._backend = backend
        backend.streams.add(self)

    def dispatch(self, command: Dispatch, ran: Ran | None = None) -> None:
        self._enter("dispatch")
        check_dispatch(self._backend, command)
        self._backend.count("dispatch")

    def copy(self, command: Copy) -> None:
        self._enter("copy")
        check_command(self._backend, command)
        self._backend.count("copy", command.target.nbytes)

    def fill(self, command: Fill) -> None:
        self._enter("fill")
        check_command(self._backend, command)
        self._backend.count("fill", command.target.nbytes)

    def upload(self, target: Span, data: Bytes) -> None:
        self._enter("upload")
        check_transfer(self._backend, target, data)
        self._backend.count("upload", data.size)

    def download(self, source: Span, out: Bytes) -> None:
        """Fill `out` with zeros: what was uploaded is not kept."""
        self._enter("download")
        check_transfer(self._backend, source, out)
        out[:] = 0
        self._backend.count("download", out.size)

    def replay(self, recording: NullRecording, changes: Mapping[int, Dispatch] | None = None) -> None:
        self._enter("replay")
        if recording not in self._backend.recordings:
            raise DeviceError("[null] the recording was freed, or belongs to another device")
        recording.change(changes)
        self._backend.count("replay")

    def record_event(self) -> Finished:
        self._enter("record_event")
        self._backend.count("event")
        return FINISHED

    def wait_event(self, event: Finished) -> None:
        self._enter("wait_event")
        self._backend.count("wait")

    def synchronize(self) -> None:
        self._enter("synchronize")
        self._backend.count("synchronize")

    def close(self) -> None:
        if self in self._backend.streams:
            self._backend.streams.discard(self)
            self._backend.count("free stream")

    def _enter(self, call: str) -> None:
        self._backend.enter(call)
        if self not in self._backend.streams:
            raise DeviceError("[null] the stream is closed")
