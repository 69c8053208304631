"""The protocols of a backend: memory, programs, and streams of commands, on one opened device.

These are protocols, not base classes: a backend is any object with these methods. The contract,
for all of them:

* Commands work on spans, pieces of buffers. Their offsets and sizes are multiples of 4 (the last
  bytes of an upload or download may be fewer), and the offset of one that a dispatch binds also of
  ``capabilities.offset_alignment``.
* A stream runs its commands as if one after the other, in the order they were recorded. The
  backend finds out from each program's interface which spans a dispatch reads and writes and
  puts barriers (or waits) where a command depends on an earlier one, nowhere else.
* Streams do not wait for each other. A command that depends on one of another stream is recorded
  behind ``wait_event`` of an event that was recorded behind that one.
* Commands return as soon as the backend allows; ``download``, ``synchronize`` and
  ``Event.synchronize`` return when the work is done.
* A stream is used by one thread at a time, different streams by any number. Everything else may be
  called from any thread.
* A buffer's contents are undefined until something writes it. Buffers, programs and recordings must not be
  freed while a command that uses them may still run.
* Failures are the typed errors of :mod:`dl4all.errors`, never a backend library's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.runtime.device_info import DeviceInfo
from dl4all.runtime.spirv import SpirvModule

Bytes = npt.NDArray[np.uint8]
Grid = tuple[int, int, int]
Clock = Literal["device", "host"]
Ran = Callable[[float, float, Clock], None]
"""Told when a dispatch ran: start and end in seconds of ``time.perf_counter``, and who measured them."""

MemoryKind = Literal["device", "host"]
"""The memory of a buffer: where the device works fastest, or where the host sees it, too."""

SUBMISSION_SECONDS = 1.0  # no submission is predicted to run longer: drivers stop those of a few seconds


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a backend beyond its shaders' ``features``."""

    programs: bool = True  # runs SPIR-V
    data: bool = True  # keeps what is written to it
    offset_alignment: int = 256  # of the spans that a dispatch binds; 0: they begin with their buffer
    asynchronous: bool = False  # commands return before they have run
    threads: bool = False  # waiting lets other threads of the process run
    replay: bool = False  # recordings cost less to replay than their commands cost to record
    tiles: bool = False  # a long dispatch is cut into several
    clock: Clock | None = "host"  # who times dispatches


class Memory(NamedTuple):
    """Bytes of device memory: those that this process may still take, and all there are."""

    free: int
    total: int


class Buffer(Protocol):
    """A piece of device memory."""

    @property
    def nbytes(self) -> int: ...

    @property
    def mapped(self) -> Bytes | None:
        """The memory as the host sees it, None where it does not. Never None for kind ``host``."""

    def free(self) -> None:
        """Give the memory back to the driver. No command that uses it may still be running."""


VECTOR = 16  # bytes that programs read at a time


class Span(NamedTuple):
    """`nbytes` bytes of a buffer from `offset` on. :func:`span` makes one that is checked.

    A program may read the vector of ``VECTOR`` bytes in which the span ends as a whole, if the buffer has it,
    and does not depend on what is there. It writes nothing beyond the span.
    """

    buffer: Any
    offset: int
    nbytes: int


def span(buffer: Buffer, offset: int = 0, nbytes: int | None = None) -> Span:
    """A piece of a buffer; by default from `offset` to its end.

    Raises:
        ArgumentError: it does not lie within the buffer, or not on multiples of 4 bytes.
    """
    if nbytes is None:
        nbytes = buffer.nbytes - offset
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise ArgumentError(
            f"[span] bytes {offset} to {offset + nbytes} are not within a buffer of {buffer.nbytes}"
        )
    if offset % 4 or (nbytes % 4 and offset + nbytes != buffer.nbytes):
        raise ArgumentError(f"[span] {nbytes} bytes from {offset} on: both must be multiples of 4")
    return Span(buffer, offset, nbytes)


class Program(Protocol):
    """A compiled compute shader with its specialization constants fixed."""

    @property
    def module(self) -> SpirvModule: ...

    @property
    def writes(self) -> tuple[bool, ...]:
        """Which of the buffers it binds it may write to."""

    def free(self) -> None:
        """Release it. No command that uses it may still be running."""


class Dispatch(NamedTuple):
    """`groups` workgroups of a program; `spans` are bound in order, `push` fills the push constants.

    ``seconds`` is how long that is predicted to take, 0 where nobody knows.
    """

    program: Any
    spans: Sequence[Span]
    groups: Grid
    push: bytes = b""
    seconds: float = 0.0


class Copy(NamedTuple):
    """The bytes of `source` to `target`, which is as large and does not overlap it."""

    source: Span
    target: Span


def check_copy(command: Copy) -> None:
    """Refuse what would write beyond the target.

    Raises:
        ArgumentError: the sizes differ, or the spans overlap.
    """
    source, target = command
    if source.nbytes != target.nbytes:
        raise ArgumentError(f"[copy] {source.nbytes} bytes do not fit a target of {target.nbytes}")
    if source.buffer is target.buffer and abs(source.offset - target.offset) < source.nbytes:
        raise ArgumentError(
            f"[copy] {source.nbytes} bytes from {source.offset} to {target.offset} of one buffer overlap"
        )


class Fill(NamedTuple):
    """A 32-bit pattern, over and over."""

    target: Span
    word: int = 0


Command: TypeAlias = Dispatch | Copy | Fill


class Recording(Protocol):
    """Commands that can be run many times."""

    @property
    def commands(self) -> tuple[Command, ...]:
        """As they were recorded."""

    def free(self) -> None:
        """Release it. It may not be running."""


class Event(Protocol):
    """A point in a stream: everything that was recorded before it."""

    def query(self) -> bool:
        """Whether all of that has run."""

    def synchronize(self, timeout: float | None = None) -> bool:
        """Wait for it, at most `timeout` seconds; returns whether it has run."""


class Stream(Protocol):
    """An in-order queue of commands on one device."""

    def dispatch(self, command: Dispatch, ran: Ran | None = None) -> None:
        """Run workgroups of a program.

        With `ran` the dispatch runs alone, is timed, and `ran` is called by the time ``synchronize``
        returns. A backend that cannot time does not call it.
        """

    def copy(self, command: Copy) -> None:
        """Copy on the device."""

    def fill(self, command: Fill) -> None:
        """Fill on the device."""

    def upload(self, target: Span, data: Bytes) -> None:
        """Copy `data` (1-d, contiguous, at most ``target.nbytes``) to the start of the span.

        What the span held behind that is undefined afterwards; what lies around it stays. `data` may be
        changed at once.
        """

    def download(self, source: Span, out: Bytes) -> None:
        """Copy the start of the span into `out` (1-d, contiguous, writable)."""

    def replay(self, recording: Any, changes: Mapping[int, Dispatch] | None = None) -> None:
        """Run the commands of a recording; `changes` replaces dispatches that may change, by their index.

        A dispatch takes the place of one with the same program and grid: its spans and push constants may
        differ. Those given last stay until they are replaced again.

        Barriers stay as they were planned for the recorded commands. The caller sees to it that a new span
        overlaps nothing that another command uses, unless the span that it replaces overlapped that as well
        and in a like way: fresh memory for an input or a result, and nothing in between.

        Raises:
            ArgumentError: a command was not recorded as one that may change, or a dispatch does not fit.
            DeviceError: something that the commands use was freed. One that may change can be replaced then.
        """

    def record_event(self) -> Event:
        """The point that this stream has reached. Work before it is begun without further calls."""

    def wait_event(self, event: Any) -> None:
        """Let later commands of this stream begin when `event`, of any stream of the device, has come."""

    def synchronize(self) -> None:
        """Wait until every command recorded so far has finished."""

    def close(self) -> None:
        """Wait for it, and release it. The device closes those that are still open."""


class Backend(Protocol):
    """One device, opened."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def features(self) -> frozenset[str]:
        """Optional features that shaders may use here: values of ``interface.FEATURES``."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def stream(self) -> Stream:
        """The stream that is always there."""

    def new_stream(self) -> Stream:
        """One more."""

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> Buffer:
        """Reserve at least `nbytes` (> 0) of memory that dispatches and copies can use.

        Raises:
            OutOfMemoryError: the device has none left.
        """

    def memory(self) -> Memory:
        """The memory that is left, as far as the driver tells."""

    def program(self, module: SpirvModule, constants: Sequence[int]) -> Program:
        """Build a pipeline. `constants` are uint32 bit patterns for spec ids 0, 1, 2, ...

        Raises:
            ShaderError: the device cannot run it.
        """

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> Recording:
        """Prepare commands for ``Stream.replay``, which may replace the dispatches of the indices `changing`.

        Raises:
            ArgumentError: one of those is no dispatch, or a command does not fit the device.
        """

    def close(self) -> None:
        """Wait for the device and release everything that was created on it.

        Where there was something to release, using the device afterwards raises DeviceError. A
        second ``close`` does nothing.
        """
