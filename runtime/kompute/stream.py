"""Commands in order: one submission, waited for, per command.

Kompute records no barrier between two dispatches of one sequence and its Python package has no
way to ask for one, so the only dependency that holds on every driver is the end of a submission
(docs/decisions/0002-kompute-ordering.md). A Kompute algorithm owns a pipeline and is bound to its
buffers, and creating one costs milliseconds; a recorded sequence is therefore kept and submitted
again when the same program meets the same buffers with the same arguments, which is every time
in a loop whose buffers come from a pool.

Dispatches are timed by the host's clock around the submission. Kompute's own timestamps are not used: it
writes them into a query pool that it never resets, which the specification forbids.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dl4all.runtime.backend import Bytes, Grid, Ran
from dl4all.runtime.kompute.buffer import KomputeBuffer
from dl4all.runtime.kompute.library import errors, kp
from dl4all.runtime.kompute.program import KomputeProgram

if TYPE_CHECKING:
    from dl4all.runtime.kompute.backend import KomputeBackend

KEPT = 1024  # recordings; each owns a pipeline

Key = tuple[KomputeProgram, tuple[int, ...], Grid, bytes]


class KomputeStream:
    def __init__(self, backend: KomputeBackend) -> None:
        self._backend = backend
        self._recordings: OrderedDict[Key, tuple[Any, Any, Sequence[KomputeBuffer]]] = OrderedDict()

    def dispatch(
        self,
        program: KomputeProgram,
        buffers: Sequence[KomputeBuffer],
        groups: Grid,
        push: bytes,
        ran: Ran | None = None,
    ) -> None:
        key = (program, tuple(map(id, buffers)), groups, push)
        found = self._recordings.get(key)
        if found is None:
            found = self._recordings[key] = self._record(key, program, buffers)
            if len(self._recordings) > KEPT:
                self._drop(next(iter(self._recordings)))
        else:
            self._recordings.move_to_end(key)
        start = 0.0 if ran is None else time.perf_counter()
        with errors(f"running {program.module.name}"):
            found[1].eval()
        if ran is not None:
            ran(start, time.perf_counter(), "host")

    def _record(
        self, key: Key, program: KomputeProgram, buffers: Sequence[KomputeBuffer]
    ) -> tuple[Any, Any, Sequence[KomputeBuffer]]:
        _, _, groups, push = key
        with errors(f"building {program.module.name}"):
            algorithm = self._backend.manager.algorithm(
                [buffer.tensor for buffer in buffers],
                program.module.code,
                groups,
                program.constants,
                np.frombuffer(push, np.uint32),
            )
            sequence = self._backend.record(kp().OpAlgoDispatch(algorithm))
        for buffer in buffers:
            buffer.recordings.add(key)
        return algorithm, sequence, tuple(buffers)

    def upload(self, buffer: KomputeBuffer, data: Bytes) -> None:
        self._backend.check_open()
        buffer.staging[: data.size] = data
        with errors("uploading"):
            buffer.to_device.eval()

    def download(self, buffer: KomputeBuffer, out: Bytes) -> None:
        self._backend.check_open()
        with errors("downloading"):
            buffer.to_host.eval()
        out[:] = buffer.staging[: out.size]

    def synchronize(self) -> None:
        """Nothing to wait for: every command was waited for when it was submitted."""

    def forget(self, buffer: KomputeBuffer) -> None:
        """Drop the recordings that use a buffer about to be freed."""
        for key in list(buffer.recordings):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        algorithm, sequence, buffers = self._recordings.pop(key)
        sequence.destroy()
        algorithm.destroy()
        for buffer in buffers:
            buffer.recordings.discard(key)

    def close(self) -> None:
        for key in list(self._recordings):
            self._drop(key)
