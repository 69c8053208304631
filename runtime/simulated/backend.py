"""A device on a virtual clock: it computes in host memory, and takes the time that its description says."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime.cpu.buffer import CpuBuffer
from dl4all.runtime.cpu.recording import CpuRecording, refuse_programs
from dl4all.runtime.cpu.stream import CpuStream
from dl4all.runtime.profiler import phase
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.description import Description, Failure
from dl4all.runtime.spirv import Module
from dl4all.runtime.work import Work

SMALL_BYTES = 1 << 20
"""Results that nothing computes are 0 up to this size: numbers that programs look at, such as a loss."""


class Hang(DeviceError):
    """The device does not answer. A queue that meets this leaves its task unfinished for ever."""


class SimulatedBackend:
    """The device that `description` describes.

    Kernels run in order on the device, beside copies up and copies down, which are in order each. They
    begin at the virtual time of the thread that asks, or when the device is done with what came before.
    """

    features: frozenset[str] = frozenset()
    capabilities = Capabilities(programs=False, clock=None)

    def __init__(self, description: Description, index: int = 0) -> None:
        self.description = description
        self.info = description.info(index)
        self.speeds = description.speeds
        self.computes = description.computes
        self.stream = CpuStream()
        self.work = Work()  # all that was done
        self.busy = 0.0  # virtual seconds of kernels
        self.computed_until = self._uploaded_until = self._downloaded_until = 0.0
        self._slowness = 1.0
        self._left = {failure: failure.after for failure in description.failures}
        self._state = ""  # why it does nothing any more
        self._lock = threading.Lock()

    # Time

    def launch(self, kind: str, nbytes: float, flops: float) -> None:
        """Let one kernel of a class run, on operands and results of so many bytes."""
        with self._lock:
            self._enter()
            self.work.count(kind, nbytes, flops)
            speeds = self.speeds
            seconds = speeds.launch + nbytes * speeds.per_byte
            seconds += flops * speeds.per_flop_in(kind)
            self._run(seconds * self._slowness)

    def _run(self, seconds: float) -> None:
        self.computed_until = max(self.computed_until, clock.now()) + seconds
        self.busy += seconds

    def upload(self, nbytes: int) -> float:
        """Let bytes come from the host; returns when they are there. Kernels do not wait for them."""
        with self._lock:
            self._enter()
            seconds = self.speeds.upload(nbytes) * self._slowness
            self._uploaded_until = max(self._uploaded_until, clock.now()) + seconds
            return self._uploaded_until

    def download(self, nbytes: int, ready: float | None = None) -> None:
        """Let bytes go to the host, which waits; by default when all kernels so far have run."""
        with self._lock:
            self._enter()
            begun = max(self.computed_until if ready is None else ready, self._downloaded_until, clock.now())
            self._downloaded_until = begun + self.speeds.download(nbytes) * self._slowness
            clock.advance_to(self._downloaded_until)

    def wait_until(self, seconds: float) -> None:
        """Let later kernels begin no sooner."""
        with self._lock:
            self.computed_until = max(self.computed_until, seconds)

    def synchronize(self) -> None:
        """Let this thread wait for all kernels."""
        self._check()
        clock.advance_to(self.computed_until)

    # Failures

    def fail(self, failure: Failure) -> None:
        """Add a failure that is to happen."""
        with self._lock:
            self._left[failure] = failure.after

    def _enter(self) -> None:
        """Refuse a command of a device that failed, or that fails now."""
        self._check()
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

    def _check(self) -> None:
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
            self._check()

    # The rest of a backend

    def new_stream(self) -> CpuStream:
        return CpuStream()

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> CpuBuffer:
        self._check()
        if not self.computes and nbytes <= SMALL_BYTES:
            return CpuBuffer(np.zeros(nbytes, np.uint8))
        return CpuBuffer.empty(nbytes)

    def memory(self) -> Memory:
        return Memory(self.info.memory, self.info.memory)

    def program(self, module: Module, constants: Sequence[int]) -> NoReturn:
        refuse_programs()

    def record(self, commands: Sequence[Command]) -> CpuRecording:
        return CpuRecording(commands)

    def close(self) -> None:
        """Host memory goes back by itself."""
