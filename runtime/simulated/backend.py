"""A device on a virtual clock: it computes in host memory, and takes the time that its description says."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal, NoReturn

import numpy as np

from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime import fork
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.cpu.recording import CpuRecording, refuse_programs
from dl4all.runtime.cpu.stream import CpuStream
from dl4all.runtime.profiler import phase, recorder
from dl4all.runtime.profiler.phase import default_phase
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.description import Description, Failure
from dl4all.runtime.simulated.timetable import Timetable
from dl4all.runtime.spirv import SpirvModule
from dl4all.runtime.work import WorkCounts

SMALL_BYTES = 1 << 20
"""Results that nothing computes are 0 up to this size: numbers that programs look at, such as a loss."""

BETWEEN_BYTES = 1 << 16
"""Copies up to this size go between the packets of larger ones, and do not wait for their ends."""


class Hang(DeviceError):
    """The device does not answer. A queue that meets this leaves its task unfinished for ever."""


class SimulatedBackend:
    """The device that `description` describes.

    Kernels run in order on the device, beside copies up and copies down, of which there is one of each at a
    time. They begin at the virtual time of the thread that asks, or when the device, or the link, is free.
    """

    features: frozenset[str] = frozenset()
    capabilities = Capabilities(programs=False, clock=None)

    def __init__(self, description: Description, index: int = 0) -> None:
        self.description = description
        self.info = description.info(index)
        self.speeds = description.speeds
        self.computes = description.computes
        self.stream = CpuStream()
        self.work = WorkCounts()  # all that was done
        self.busy = 0.0  # virtual seconds of kernels
        self.moved = {"upload": 0, "download": 0}  # bytes
        self.computed_until = 0.0
        self.copied_until = 0.0
        self._uploads, self._downloads = Timetable(), Timetable()
        self._slowness = 1.0
        self._left = {failure: failure.after for failure in description.failures}
        self._state = ""  # why it does nothing any more
        self._lock = fork.lock()

    # Time

    def launch(self, kind: str, nbytes: float, flops: float) -> None:
        """Let one kernel of a class run, on operands and results of so many bytes."""
        with self._lock:
            self._enter()
            self.work.count(kind, nbytes, flops)
            speeds = self.speeds
            seconds = speeds.launch + nbytes * speeds.per_byte
            seconds += flops * speeds.per_flop_in(kind)
            begun = self._run(seconds * self._slowness)
            active = recorder.active
            if active is not None:
                name, ended = self.info.names[0], self.computed_until
                active.virtual(
                    "kernel", kind or "kernel", name, begun, ended, nbytes=int(nbytes), flops=int(flops)
                )

    def _run(self, seconds: float) -> float:
        """Let the device compute for some time; returns when that begins."""
        begun = max(self.computed_until, clock.now())
        self.computed_until = begun + seconds
        self.busy += seconds
        return begun

    def upload(self, nbytes: int, since: float = 0.0) -> float:
        """Let bytes come from the host, which has them from `since` on; returns when they are there.

        Kernels do not wait for them.
        """
        with default_phase("upload"), self._lock:
            self._enter()
            begun = max(clock.now(), since)
            seconds = self.speeds.upload(nbytes) * self._slowness
            return self._copy("upload", self._uploads, nbytes, begun, seconds)

    def download(self, nbytes: int, ready: float | None = None) -> None:
        """Let bytes go to the host, which waits; by default when all kernels so far have run."""
        clock.advance_to(self.download_later(nbytes, ready))

    def download_later(self, nbytes: int, ready: float | None = None) -> float:
        """:meth:`download` without a wait; returns when they are there."""
        with default_phase("download"), self._lock:
            self._enter()
            begun = max(self.computed_until if ready is None else ready, clock.now())
            seconds = self.speeds.download(nbytes) * self._slowness
            return self._copy("download", self._downloads, nbytes, begun, seconds)

    def _copy(
        self, kind: Literal["upload", "download"], link: Timetable, nbytes: int, since: float, seconds: float
    ) -> float:
        """Count a copy; returns when it ends."""
        ended = since + seconds if nbytes <= BETWEEN_BYTES else link.book(since, seconds)
        self.copied_until = max(self.copied_until, ended)
        self.moved[kind] += nbytes
        active = recorder.active
        if active is not None:
            active.virtual(kind, kind, self.info.names[0], ended - seconds, ended, nbytes=nbytes)
        return ended

    def wait_until(self, seconds: float) -> None:
        """Let later kernels begin no sooner."""
        with self._lock:
            self.computed_until = max(self.computed_until, seconds)

    def synchronize(self) -> None:
        """Let this thread wait for all kernels and copies."""
        self.check()
        clock.advance_to(max(self.computed_until, self.copied_until))

    # Failures

    def fail(self, failure: Failure) -> None:
        """Add a failure that is to happen."""
        with self._lock:
            self._left[failure] = failure.after

    def _enter(self) -> None:
        """Refuse a command of a device that failed, or that fails now."""
        self.check()
        if not self._left:
            return
        now = phase.current()
        due = None
        for failure, left in list(self._left.items()):
            if failure.phase in ("", now):
                self._left[failure] = left - 1
                if not left:
                    due = failure
        if due is not None:
            del self._left[due]
            self._happen(due)

    def check(self) -> None:
        """Refuse a device that failed.

        Raises:
            DeviceLostError, Hang
        """
        if self._state == "lost":
            raise DeviceLostError(f"[simulated] {self.info.hardware} was lost; what was on it is gone")
        if self._state == "hang":
            raise Hang(f"[simulated] {self.info.hardware} does not answer")

    def _happen(self, failure: Failure) -> None:
        if failure.kind == "slow":
            self._slowness *= failure.factor
        elif failure.kind == "memory":
            raise OutOfMemoryError(f"[simulated] {self.info.hardware} has no memory left")
        else:
            self._state = failure.kind
            if failure.kind == "hang":
                self.computed_until = math.inf
            self.check()

    # The rest of a backend

    def new_stream(self) -> CpuStream:
        return CpuStream()

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> CpuBuffer:
        self.check()
        if not self.computes and nbytes <= SMALL_BYTES:
            return CpuBuffer(np.zeros(nbytes, np.uint8))
        return CpuBuffer.empty(nbytes)

    def memory(self) -> Memory:
        return Memory(self.info.memory, self.info.memory)

    def program(self, module: SpirvModule, constants: Sequence[int]) -> NoReturn:
        refuse_programs()

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> CpuRecording:
        return CpuRecording(commands, changing)

    def close(self) -> None:
        """Host memory goes back by itself."""
