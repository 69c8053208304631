"""A device that runs nothing, keeps no data, counts every call and fails when told to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dl4all.errors import ArgumentError, DeviceError, OutOfMemoryError, UnknownDeviceError
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.buffer import NullBuffer
from dl4all.runtime.null.program import NullProgram
from dl4all.runtime.null.recording import NullRecording
from dl4all.runtime.null.stream import NullStream
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.requirements import check_interface
from dl4all.runtime.spirv import Module

Call = Literal[
    "allocate", "program", "dispatch", "copy", "fill", "upload", "download", "record", "replay",
    "record_event", "wait_event", "new_stream", "synchronize",
]  # fmt: skip
"""What can be made to fail."""


@dataclass
class _Fault:
    call: Call
    after: int  # calls that still succeed
    times: int  # calls that fail then
    error: Exception


class NullBackend:
    """The device that `info` describes; by default one with no more than Vulkan's least limits.

    ``counts`` holds how often each call succeeded, and its bytes: ``counts["upload"]``,
    ``counts["upload bytes"]``. Events and streams count as ``event``, ``wait`` and ``stream``, and what is
    given back as ``free``, ``free program``, ``free recording`` and ``free stream``. A replay counts as one,
    whatever it holds. What a real device would answer with undefined behaviour is refused: a grid, a span
    or push constants that do not fit, with ArgumentError; what was freed, with DeviceError.
    """

    name = "null"

    def __init__(self, info: DeviceInfo | None = None, features: frozenset[str] = frozenset()) -> None:
        self.info = describe() if info is None else info
        self.features = features
        self.capabilities = Capabilities(
            data=False, offset_alignment=self.info.limits.storage_alignment, clock=None
        )
        self.counts: Counter[str] = Counter()
        self.buffers: set[NullBuffer] = set()
        self.programs: set[NullProgram] = set()
        self.recordings: set[NullRecording] = set()
        self.streams: set[NullStream] = set()
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()  # of the counts and the faults
        self._closed = False
        self.stream = NullStream(self)

    def fail(self, call: Call, *, after: int = 0, times: int = 1, error: Exception) -> None:
        """Let `after` more calls succeed, then `times` calls raise `error`.

        Raises:
            ArgumentError: there is no such call.
        """
        if call not in get_args(Call):
            raise ArgumentError(f"[null] nothing is called {call!r}; use {', '.join(get_args(Call))}")
        self._faults.append(_Fault(call, after, times, error))

    def recover(self) -> None:
        """Forget what :meth:`fail` was told and has not happened yet."""
        self._faults.clear()

    def enter(self, call: Call) -> None:
        """Refuse a call on a closed device, or one that was made to fail."""
        if self._closed:
            raise DeviceError(f"[null] {self.info.hardware} is closed; what was on it is gone")
        with self._lock:
            error = self._due(call)
        if error is not None:
            try:
                raise error
            finally:
                del error  # or the error would hold this frame, the frame the error, and both what led here

    def _due(self, call: Call) -> Exception | None:
        for fault in [fault for fault in self._faults if fault.call == call]:
            if fault.after:
                fault.after -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            return fault.error
        return None

    def count(self, call: str, nbytes: int = 0) -> None:
        """Count a call that succeeded."""
        with self._lock:
            self.counts[call] += 1
            if nbytes:
                self.counts[f"{call} bytes"] += nbytes

    def new_stream(self) -> NullStream:
        self.enter("new_stream")
        self.count("stream")
        return NullStream(self)

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> NullBuffer:
        self.enter("allocate")
        if nbytes <= 0:
            raise ArgumentError(f"[null] no buffer has {nbytes} bytes; the smallest has 1")
        taken = self._taken()
        limits = self.info.limits
        if nbytes > limits.allocation_size or taken + nbytes > self.info.memory:
            raise OutOfMemoryError(
                f"[null] {nbytes} bytes do not fit: {taken} of {self.info.memory} bytes are taken and one "
                f"buffer may have {limits.allocation_size}; free tensors or use a smaller batch"
            )
        buffer = NullBuffer(self, nbytes, kind)
        self.count("allocate", nbytes)
        return buffer

    def memory(self) -> Memory:
        return Memory(self.info.memory - self._taken(), self.info.memory)

    def _taken(self) -> int:
        return sum(buffer.nbytes for buffer in tuple(self.buffers))

    def program(self, module: Module, constants: Sequence[int]) -> NullProgram:
        self.enter("program")
        check_interface(module, constants, self.info.limits, self.features)
        self.count("program")
        return NullProgram(self, module)

    def record(self, commands: Sequence[Command]) -> NullRecording:
        self.enter("record")
        recording = NullRecording(self, commands)
        self.count("record")
        return recording

    def close(self) -> None:
        for stream in tuple(self.streams):
            stream.close()
        for recording in tuple(self.recordings):
            recording.free()
        for buffer in tuple(self.buffers):
            buffer.free()
        for program in tuple(self.programs):
            program.free()
        self._closed = True


def open(index: int) -> NullBackend:
    """A null device; there is only number 0.

    Raises:
        UnknownDeviceError: another number.
    """
    if index:
        raise UnknownDeviceError(f"[null] no device {index}; there is only null:0")
    return NullBackend()


def find() -> tuple[DeviceInfo, ...]:
    """The one null device."""
    return (describe(),)


def describe() -> DeviceInfo:
    """A device that has what Vulkan 1.1 requires and nothing more."""
    return DeviceInfo(
        index=0,
        hardware="the null device",
        type="other",
        vendor="dl4all",
        driver="null",
        driver_version="",
        api_version="",
        memory=2**40,
        subgroup_size=1,
        backends=("null",),
    )
