"""A device that runs nothing, keeps no data and counts every call: the skeleton that a new backend copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from dl4all.errors import ArgumentError, DeviceError, OutOfMemoryError, UnknownDeviceError
from dl4all.runtime import fork
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.null.buffer import NullBuffer
from dl4all.runtime.null.program import NullProgram
from dl4all.runtime.null.recording import NullRecording
from dl4all.runtime.null.stream import NullStream
from dl4all.runtime.protocols import Capabilities, Command, Memory, MemoryKind
from dl4all.runtime.requirements import check_interface
from dl4all.runtime.spirv import SpirvModule


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
            data=False, offset_alignment=self.info.limits.storage_alignment, replay=True, clock=None
        )
        self.counts: Counter[str] = Counter()
        self.buffers: set[NullBuffer] = set()
        self.programs: set[NullProgram] = set()
        self.recordings: set[NullRecording] = set()
        self.streams: set[NullStream] = set()
        self._lock = fork.lock()  # of the counts
        self._closed = False
        self.stream = NullStream(self)

    def enter(self, call: str) -> None:
        """Refuse a call on a closed device."""
        if self._closed:
            raise DeviceError(f"[null] {self.info.hardware} is closed; what was on it is gone")

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

    def program(self, module: SpirvModule, constants: Sequence[int]) -> NullProgram:
        self.enter("program")
        check_interface(module, constants, self.info.limits, self.features)
        self.count("program")
        return NullProgram(self, module)

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> NullRecording:
        self.enter("record")
        recording = NullRecording(self, commands, changing)
        self.count("record")
        return recording

    def forget(self, thing: NullBuffer | NullProgram) -> None:
        """Something is about to be freed."""
        for recording in tuple(self.recordings):
            recording.forget(thing)

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
