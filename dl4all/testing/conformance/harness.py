"""A backend on the bench: what tests do with it all the time, cleared away after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.runtime.protocols import Backend, Capabilities, Command, Dispatch, MemoryKind, Ran, Stream
from dl4all.testing.conformance.support.kernels import POISON, Kernels, Words, get, put


class Bench:
    """A backend, the kernels on it, and what a test has made there."""

    def __init__(self, backend: Backend, kernels: Kernels) -> None:
        self.backend, self.kernels = backend, kernels
        self._made: list[Any] = []
        self._streams: list[Stream] = []

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the backend promises."""
        return self.backend.capabilities

    @property
    def stream(self) -> Stream:
        """The stream that is always there."""
        return self.backend.stream

    @property
    def unit(self) -> int:
        """Words between the places at which a dispatch may bind a span; 0 where it binds whole buffers."""
        alignment = self.capabilities.offset_alignment
        return max(alignment, 4) // 4 if alignment else 0

    # Things that are given back after the test

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> Any:
        """A new buffer."""
        buffer = self.backend.allocate(nbytes, kind)
        self._made.append(buffer)
        return buffer

    def put(self, data: npt.NDArray[Any], kind: MemoryKind = "device") -> Any:
        """A new buffer that holds `data`."""
        buffer = put(self.backend, data, kind)
        self._made.append(buffer)
        return buffer

    def poison(self, count: int) -> Any:
        """A new buffer of `count` words, all bits set."""
        return self.put(np.full(count, POISON, np.uint32))

    def new_stream(self) -> Stream:
        """One more stream."""
        stream = self.backend.new_stream()
        self._streams.append(stream)
        return stream

    def record(self, commands: Sequence[Command], changing: Collection[int] = ()) -> Any:
        """A recording."""
        recording = self.backend.record(commands, changing)
        self._made.append(recording)
        return recording

    def clear(self) -> None:
        """Wait for everything and give back what was made, in the order that the protocol asks for."""
        for stream in self._streams:
            stream.close()  # which waits
        self.stream.synchronize()
        for thing in reversed(self._made):
            thing.free()

    # Commands

    def get(self, source: Any, count: int, stream: Stream | None = None) -> Words:
        """The first `count` words of a buffer or span."""
        return get(self.backend, source, count, stream)

    def command(self, name: str, *operands: Any, n: int, k: int, seconds: float = 0.0) -> Dispatch:
        """A one-dimensional kernel over `n` elements."""
        return self.kernels.command(name, *operands, n=n, k=k, seconds=seconds)

    def run(
        self,
        name: str,
        *operands: Any,
        n: int,
        k: int,
        stream: Stream | None = None,
        ran: Ran | None = None,
    ) -> None:
        """Dispatch one."""
        (stream or self.stream).dispatch(self.command(name, *operands, n=n, k=k), ran)

    def expect(self, source: Any, expected: Words, note: str = "") -> None:
        """A buffer or span starts with these words."""
        np.testing.assert_array_equal(self.get(source, expected.size), expected, err_msg=note)

    def busy_for(self, seconds: float, count: int) -> int:
        """The k with which ``busy`` over `count` words takes about that long here."""
        buffer = self.poison(count)
        k = 64
        while True:
            self.stream.synchronize()
            begun = time.perf_counter()
            self.run("busy", buffer, n=count, k=k)
            self.stream.synchronize()
            took = time.perf_counter() - begun
            if took > seconds / 8 or k > 2**28:
                return min(max(1, int(k * seconds / took)), 2**31)
            k *= 4


Open = Callable[[], Bench]
"""Opens the backend once more, for itself."""
