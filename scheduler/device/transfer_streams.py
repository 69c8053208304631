"""Copies that run beside what a device computes, or that nobody waits for yet.

Uploads have a stream of their own, with memory of its own that no command of the main stream may still use;
the main stream waits for a copy when it first uses what was copied. Downloads take their place among the
commands of the main stream, or have a stream of their own. Both go through staging memory.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy.typing as npt

from dl4all.allocator.allocation import aligned
from dl4all.allocator.allocator import Allocator
from dl4all.allocator.pinned import HostView
from dl4all.allocator.staging_pool import Staging, StagingPool
from dl4all.allocator.storage import Storage
from dl4all.errors import DeviceError
from dl4all.runtime import fork
from dl4all.runtime.protocols import Backend, Buffer, Bytes, Copy, Event, Span, Stream
from dl4all.scheduler.device.download import Download


class _SideStream:
    """A stream beside the main one, made when it is first used, with a lock of its own."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._stream: Stream | None = None
        self.lock = fork.rlock()

    def get(self) -> Stream:
        """The stream. Whoever uses it holds the lock."""
        with self.lock:
            if self._stream is None:
                self._stream = self._backend.new_stream()
            return self._stream

    def owns(self, stream: Stream) -> bool:
        return stream is self._stream

    def events(self) -> list[Event]:
        """The point that it has reached, if it was ever used."""
        with self.lock:
            return [] if self._stream is None else [self._stream.record_event()]

    def synchronize(self) -> None:
        """Wait for its copies."""
        with self.lock:
            if self._stream is not None:
                self._stream.synchronize()


class TransferStreams:
    """The streams of one asynchronous device, and their memory on the host.

    Methods may be called from any thread. A side stream's lock may be asked for while the allocator's or the
    device's is held, never the other way round.
    """

    def __init__(self, name: str, backend: Backend, pool: Allocator, lock: threading.RLock) -> None:
        self._name = name
        self._backend = backend
        self._pool = pool
        self._main = backend.stream
        self._lock = lock  # of the device, and so of the main stream
        self._up, self._down = _SideStream(backend), _SideStream(backend)
        self.staging = StagingPool(backend, self._record_events)

    def lock_of(self, stream: Stream) -> threading.RLock:
        """The lock to hold while `stream` is used."""
        return next((side.lock for side in (self._up, self._down) if side.owns(stream)), self._lock)

    def locks(self) -> tuple[threading.RLock, ...]:
        """The locks under which threads use these streams."""
        return self._up.lock, self._down.lock

    def _record_events(self) -> list[Event]:
        """The points that all streams have reached."""
        with self._lock:
            events = [self._main.record_event()]
        return events + self._up.events() + self._down.events()

    def synchronize(self) -> None:
        """Wait for all copies beside the main stream."""
        self._up.synchronize()
        self._down.synchronize()

    # Up

    def reserve(self, nbytes: int, tag: str) -> Storage:
        """Memory that no command of the main stream uses yet, for :meth:`deliver`.

        Raises:
            OutOfMemoryError
        """
        storage = self._pool.storage(nbytes, tag, self._up.get())
        storage.used_on(self._main)
        return storage

    def deliver(self, storage: Storage, array: npt.NDArray[Any]) -> Event:
        """Copy an array, which may be changed at once, to a new storage; returns what its users wait for."""
        nbytes = aligned(array.nbytes, 4)
        staging = self.staging.take(nbytes)
        buffer = staging.buffer
        assert buffer.mapped is not None
        buffer.mapped[: array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        with self._up.lock:
            stream = self._up.get()
            stream.copy(Copy(Span(buffer, 0, nbytes), Span(storage.buffer, storage.span.offset, nbytes)))
            event = stream.record_event()
        staging.used_until(event)
        return event

    # Down

    def download(self, source: Span) -> Download:
        """Copy a span behind what was asked of the device so far, and before what will be."""
        staging, copy, skew = self._staged(source)
        with self._lock:
            self._main.copy(copy)
            event = self._main.record_event()
        return self._download(staging, copy.target, event, skew, source.nbytes)

    def download_beside(self, storage: Storage, source: Span) -> Download:
        """Copy a span of a storage that nobody writes, beside what the device is asked for from now on."""
        with self._lock:
            computed = self._main.record_event()
        if source.buffer.mapped is not None:
            fetch = functools.partial(_copied, self._name, storage, source)
            return Download(self._name, source.nbytes, computed, fetch)
        staging, copy, skew = self._staged(source)
        with self._down.lock:
            stream = self._down.get()
            storage.used_on(stream)
            stream.wait_event(computed)
            stream.copy(copy)
            event = stream.record_event()
        return self._download(staging, copy.target, event, skew, source.nbytes)

    def _staged(self, source: Span) -> tuple[Staging, Copy, int]:
        """The copy of a span to staging memory in whole words, and how many bytes of it lie in front."""
        skew = source.offset % 4
        nbytes = aligned(skew + source.nbytes, 4)
        staging = self.staging.take(nbytes)
        target = Span(staging.buffer, 0, nbytes)
        return staging, Copy(Span(source.buffer, source.offset - skew, nbytes), target), skew

    def _download(self, staging: Staging, staged: Span, event: Event, skew: int, nbytes: int) -> Download:
        # The memory goes back when nobody can read it any more, be it unread.
        staging.used_until(event)
        view = HostView(staged, self._backend, staging)
        return Download(self._name, nbytes, event, functools.partial(_shown, self._name, view, skew, nbytes))


def _shown(name: str, view: HostView, skew: int, nbytes: int) -> Bytes:
    _check_open(name, view.span.buffer, nbytes)
    return view.bytes()[skew : skew + nbytes]


def _copied(name: str, storage: Storage, source: Span) -> Bytes:
    """A copy of a part of a storage, which is alive until then."""
    _check_open(name, storage.buffer, source.nbytes)
    part: Bytes = source.buffer.mapped[source.offset : source.offset + source.nbytes]
    return part.copy()


def _check_open(name: str, buffer: Buffer, nbytes: int) -> None:
    """Raise DeviceError if the memory went with its device, ForkError if it is the parent's."""
    if buffer.mapped is None:
        fork.check(name)
        raise DeviceError(
            f"[Download] {name} was closed before its {nbytes} bytes were read; read them before that"
        )
