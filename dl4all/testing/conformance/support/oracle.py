"""A few buffers, and the NumPy arrays that should be in them.

A :class:`OracleStep` is one command on pieces of the buffers. The same step is run at once, put into a
recording, and done to the arrays, which is what the tests of order compare.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dl4all.runtime.protocols import Command, Copy, Dispatch, Fill, Span, Stream, span
from dl4all.testing.conformance.harness import Bench
from dl4all.testing.conformance.support.kernels import Words, bytes_of, step, words

DISPATCHES = {"step": 2, "step_in_place": 1, "rotate": 2, "add": 3}  # how many pieces each takes
TRANSFERS = {"copy": 2, "fill": 1}
HOST = {"upload": 1, "download": 1}


class MemoryPiece(NamedTuple):
    """Words of one of the buffers."""

    buffer: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class OracleStep(NamedTuple):
    """A command: what it does, on which pieces, the last of which it writes."""

    kind: str
    pieces: tuple[MemoryPiece, ...]
    k: int

    @property
    def length(self) -> int:
        """The number of words that it works on."""
        return min(piece.length for piece in self.pieces)


class Model:
    """Buffers of `count` words each, some on the host, and what they should hold."""

    def __init__(self, bench: Bench, seed: int, buffers: int, count: int) -> None:
        self.bench, self.count = bench, count
        self.arrays: list[Words] = [words(1000 * seed + i, count) for i in range(buffers)]
        self.buffers: list[Any] = [bench.put(array, self._kind(i)) for i, array in enumerate(self.arrays)]

    @staticmethod
    def _kind(index: int) -> Any:
        return "host" if index == 1 else "device"

    def span(self, piece: MemoryPiece) -> Span:
        """A piece as a command takes it; all of the buffer's words are the whole buffer."""
        buffer = self.buffers[piece.buffer]
        if piece.length == self.count:
            return span(buffer)
        return span(buffer, 4 * piece.start, 4 * piece.length)

    def command(self, todo: OracleStep) -> Command:
        """A step that the device does by itself."""
        spans = [self.span(piece) for piece in todo.pieces]
        if todo.kind == "copy":
            source, target = (Span(part.buffer, part.offset, 4 * todo.length) for part in spans)
            return Copy(source, target)
        if todo.kind == "fill":
            return Fill(spans[0], todo.k)
        return self.bench.command(todo.kind, *spans, n=todo.length, k=todo.k)

    def run(self, todo: OracleStep, stream: Stream | None = None) -> None:
        """Do a step on both sides; a download compares them."""
        stream = stream or self.bench.stream
        last = todo.pieces[-1]
        held = self.arrays[last.buffer][last.start : last.stop]
        if todo.kind == "download":
            np.testing.assert_array_equal(self.bench.get(self.span(last), last.length, stream), held)
            return
        if todo.kind == "upload":
            data = words(todo.k, last.length)
            stream.upload(self.span(last), bytes_of(data))
            data[:] = 0  # it was taken
        else:
            run(stream, self.command(todo))
        self.apply(todo)

    def apply(self, todo: OracleStep) -> None:
        """Do it to the arrays."""
        n, k = todo.length, todo.k
        pieces = [self.arrays[p.buffer][p.start : p.start + n] for p in todo.pieces]
        first, last = pieces[0].copy(), pieces[-1]
        if todo.kind == "upload":
            last[:] = words(k, n)
        elif todo.kind == "fill":
            last[:] = k
        elif todo.kind == "copy":
            last[:] = first
        elif todo.kind == "rotate":
            last[:] = np.roll(first, k)
        elif todo.kind == "add":
            last[:] = first + pieces[1] * np.uint32(k)
        else:
            last[:] = step(first, k)

    def check(self, note: str = "", stream: Stream | None = None) -> None:
        """All of every buffer is right."""
        for buffer, array in zip(self.buffers, self.arrays, strict=True):
            found = self.bench.get(buffer, array.size, stream)
            np.testing.assert_array_equal(found, array, err_msg=note)


def run(stream: Stream, command: Command) -> None:
    """Put a command into a stream."""
    if isinstance(command, Dispatch):
        stream.dispatch(command)
    elif isinstance(command, Copy):
        stream.copy(command)
    else:
        stream.fill(command)
