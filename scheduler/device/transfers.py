"""Copies between the host and a device: directly, through staging memory, or from pinned memory."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dl4all.allocator.allocator import Allocator
from dl4all.allocator.guard import set_guard
from dl4all.allocator.pinned import HostView
from dl4all.allocator.staging import CHUNK, Ring
from dl4all.allocator.storage import Storage
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Backend, Buffer, Bytes, Copy, Span, Stream


class Traffic(threading.local):
    """The bytes that a thread has copied from devices and to them."""

    down = up = 0


traffic = Traffic()


class _Pin:
    """Lives as long as anybody shows a piece of pinned memory."""

    __slots__ = ("__weakref__",)


class Transfers:
    """The copies of one device. Whoever calls holds the device's lock, unless a method takes it itself."""

    def __init__(
        self, name: str, backend: Backend, pool: Allocator, lock: threading.RLock, *, guarded: bool
    ) -> None:
        self._name = name
        self._backend = backend
        self._stream = backend.stream
        self._pool = pool
        self._lock = lock
        self._guarded = guarded  # every storage ends in a guard that is looked at
        self._ring: Ring | None = None  # made for the first staged copy
        self._pinned_stream: Stream | None = None  # made for the first upload from pinned memory
        self._pinned: dict[weakref.ref[_Pin], Buffer] = {}
        # Memory that nobody shows any more. The interpreter itself puts it here: Python code there would
        # swallow an interrupt.
        self._unpinned: deque[weakref.ref[_Pin]] = deque()
        self.staged = False  # the last upload needed staging memory: the device's memory is not mapped
        self.device_busy = False  # something was asked of the device since it was last waited for

    def upload(self, target: Storage, array: npt.NDArray[Any]) -> None:
        """Copy a host array to the start of a storage; the array may be changed at once afterwards."""
        data = bytes_of(np.ascontiguousarray(array))
        active = recorder.active
        if active is None:
            self._to_device(target.span, data)
        else:
            with self._timed(active, "upload", array.nbytes):
                self._to_device(target.span, data)
        if self._guarded:
            set_guard(self._stream, target)

    def write(self, target: Storage, array: npt.NDArray[Any]) -> None:
        """:meth:`upload` without a row in profiles."""
        self._to_device(target.span, bytes_of(np.ascontiguousarray(array)))
        if self._guarded:
            set_guard(self._stream, target)

    def _to_device(self, target: Span, data: Bytes) -> None:
        traffic.up += data.size
        # A mapped buffer is written directly where that needs no wait, or where copying twice costs more.
        direct = target.buffer.mapped is not None and (not self.device_busy or data.size > CHUNK)
        if direct or not self._backend.capabilities.asynchronous:
            self._stream.upload(target, data)
            return
        self.staged = target.buffer.mapped is None
        self._staging().upload(target, data)

    def upload_pinned(self, source: Span) -> Storage:
        """Copy pinned memory on a stream of its own, beside what the device computes.

        It waits for the copy only. Takes the lock itself, as it must not hold it while it waits.
        """
        with self._lock:
            if self._pinned_stream is None:
                self._pinned_stream = self._backend.new_stream()
            stream = self._pinned_stream
        traffic.up += source.nbytes
        storage = self._pool.storage(source.nbytes, "upload", stream)
        with self._lock:
            stream.copy(Copy(source, Span(storage.buffer, storage.span.offset, source.nbytes)))
            if self._guarded:
                set_guard(stream, storage)
            event = stream.record_event()
            self._stream.wait_event(event)
            storage.used_on(self._stream)
            self.device_busy = True
        event.synchronize()
        return storage

    def download(self, source: Span, out: npt.NDArray[Any]) -> None:
        """Copy a span into a contiguous array of its size, when it has been computed."""
        active = recorder.active
        if active is None:
            self._to_host(source, bytes_of(out))
        else:
            with self._timed(active, "download", out.nbytes):
                self._to_host(source, bytes_of(out))

    def _to_host(self, source: Span, out: Bytes) -> None:
        traffic.down += out.size
        if source.buffer.mapped is None and self._backend.capabilities.asynchronous:
            self._staging().download(source, out)
        else:
            self._stream.download(source, out)

    def _staging(self) -> Ring:
        if self._ring is None:
            self._ring = Ring(self._backend, self._stream)
        return self._ring

    @contextlib.contextmanager
    def _timed(
        self, active: recorder.Recorder, kind: Literal["upload", "download"], nbytes: int
    ) -> Iterator[None]:
        """Wait before a copy and after it, so that the seconds in the profile are its own."""
        self._stream.synchronize()
        with active.transfer(kind, self._name, nbytes):
            yield
            self._stream.synchronize()

    def pin(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of a host array in memory that the device copies from by itself."""
        if self._unpinned:
            if self._pinned_stream is not None:
                self._pinned_stream.synchronize()  # uploads wait for their copies, but may be interrupted
            self._free_unpinned()
        buffer = self._backend.allocate(array.nbytes or 1, "host")
        pin = _Pin()
        self._pinned[weakref.ref(pin, self._unpinned.append)] = buffer
        view = HostView(Span(buffer, 0, buffer.nbytes), self._backend, pin)
        pinned = view.bytes()[: array.nbytes].view(array.dtype).reshape(array.shape)
        pinned[...] = array
        return pinned

    def _free_unpinned(self) -> None:
        """Free memory that nobody shows any more, and that no copy uses."""
        while self._unpinned:
            buffer = self._pinned.get(self._unpinned[0])
            if buffer is not None:
                buffer.free()
                self._pinned.pop(self._unpinned[0], None)
            self._unpinned.popleft()

    def synchronize(self) -> None:
        """Wait for all copies and for the device."""
        if self._pinned_stream is not None:
            self._pinned_stream.synchronize()
        self._stream.synchronize()
        self.device_busy = False
        self._free_unpinned()


def bytes_of(array: npt.NDArray[Any]) -> Bytes:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8)
