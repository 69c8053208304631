"""Host memory that the device copies from and to, used in turns: transfers without an allocation or a wait.

A chunk of the ring is filled from the front. A full one may be filled again when the device has read it,
which an event tells; with several chunks that has usually happened long before. So the host writes one chunk
while the device copies another one and computes. Where the next chunk is free earlier, its front is used
instead of the rest of this one: a program that uploads little stays in little memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from dl4all.allocator.allocation import aligned
from dl4all.runtime.protocols import Backend, Buffer, Bytes, Copy, Event, Span, Stream

CHUNK = 4 << 20
CHUNKS = 4
ENOUGH = 64 << 10  # in a chunk, to be worth an event, which ends a submission
ALIGNMENT = 256  # of places in a chunk


class Ring:
    """The chunks of one stream. Whoever calls holds the stream's lock.

    Raises:
        OutOfMemoryError: there is no host memory that the device can reach.
    """

    def __init__(self, backend: Backend, stream: Stream) -> None:
        self._stream = stream
        self._chunks: list[tuple[Buffer, Bytes]] = []
        for _ in range(CHUNKS):
            buffer = backend.allocate(CHUNK, "host")
            assert buffer.mapped is not None
            self._chunks.append((buffer, buffer.mapped))
        self._events: list[Event | None] = [None] * CHUNKS  # that must come before a chunk is used again
        self._current = 0
        self._used = 0

    def upload(self, target: Span, data: Bytes) -> None:
        """Copy `data` to the start of a span; `data` may be changed at once."""
        buffer, offset, _ = target
        for start, nbytes in _parts(data.size):
            part, memory = self._take(nbytes)
            memory[:] = data[start : start + nbytes]
            self._stream.copy(Copy(part, Span(buffer, offset + start, part.nbytes)))

    def download(self, source: Span, out: Bytes) -> None:
        """Copy the start of a span into `out`; while one part is copied out, the next is on its way."""
        buffer, offset, _ = source
        skew = offset % 4  # of a view of single bytes
        waiting: list[tuple[Event, Bytes, Bytes]] = []
        for start, nbytes in _parts(out.size):
            if len(waiting) == CHUNKS - 1:
                _copy_out(*waiting.pop(0))
            part, memory = self._take(skew + nbytes)
            self._stream.copy(Copy(Span(buffer, offset - skew + start, part.nbytes), part))
            waiting.append((self._stream.record_event(), memory[skew:], out[start : start + nbytes]))
        for arrived in waiting:
            _copy_out(*arrived)

    def _take(self, nbytes: int) -> tuple[Span, Bytes]:
        """A part of a chunk, no longer in use, in whole words; and so many bytes of it."""
        following = (self._current + 1) % CHUNKS
        event = self._events[following]
        full = self._used + nbytes > CHUNK
        if full or (self._used >= ENOUGH and (event is None or event.query())):
            self._events[self._current] = self._stream.record_event()
            if event is not None:
                event.synchronize()
                self._events[following] = None
            self._current, self._used = following, 0
        buffer, memory = self._chunks[self._current]
        start, self._used = self._used, aligned(self._used + nbytes, ALIGNMENT)
        return Span(buffer, start, aligned(nbytes, 4)), memory[start : start + nbytes]


def _parts(nbytes: int) -> Iterator[tuple[int, int]]:
    """Starts and sizes of the parts that bytes are copied in."""
    for start in range(0, nbytes, CHUNK):
        yield start, min(CHUNK, nbytes - start)


def _copy_out(event: Event, memory: Bytes, out: Bytes) -> None:
    event.synchronize()
    out[:] = memory
