"""Copies between a device and others that nobody waits for, or that others bring."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dl4all.allocator.guard import set_guard
from dl4all.allocator.storage import Storage
from dl4all.runtime.profiler import recorder
from dl4all.runtime.protocols import Backend, Bytes, Event, Span
from dl4all.scheduler import listeners
from dl4all.scheduler.device import link
from dl4all.scheduler.device.download import Download, arrived
from dl4all.scheduler.device.transfer_streams import TransferStreams
from dl4all.scheduler.device.transfers import Transfers
from dl4all.scheduler.streams.task import Task

if TYPE_CHECKING:
    from dl4all.scheduler.device.device import Device


class DeviceCopies:
    """The copies of one device that it makes beside its commands: ``device.copies``."""

    def __init__(
        self,
        device: Device,
        backend: Backend,
        transfers: Transfers,
        beside: TransferStreams,
        lock: threading.RLock,
        *,
        guarded: bool,
    ) -> None:
        self._device = device
        self._stream = backend.stream
        self._transfers = transfers
        self._beside = beside
        self._lock = lock
        self._guarded = guarded  # every storage ends in a guard that is looked at
        self._noted: deque[Task] = deque()  # to and from other devices, by threads

    def upload_later(self, array: npt.NDArray[Any]) -> Storage:
        """Copy a host array to the device beside what it computes; the array may be changed at once.

        Commands that use the storage wait for the copy, on the device; errors of the copy are raised there.

        Raises:
            OutOfMemoryError
        """
        listeners.unplanned()
        if listeners.followed() and not self._device.is_host:
            return self._device.upload(array)
        storage = self.reserve(array.nbytes)
        storage.pending = self.deliver(storage, array)
        if self._device.simulated is not None:
            link.receive_later(self._device.simulated, storage)
        return storage

    def reserve(self, nbytes: int, tag: str = "upload") -> Storage:
        """Memory with undefined contents, for :meth:`deliver`: no command of the device may still use it.

        Raises:
            OutOfMemoryError
        """
        if not self._device.asynchronous or not nbytes:
            return self._device.allocate(nbytes, tag)
        storage = self._beside.reserve(nbytes, tag)
        if self._guarded:
            with self._lock:
                set_guard(self._stream, storage)
        return storage

    def host_memory(self, storage: Storage) -> Bytes | None:
        """Memory from :meth:`reserve` itself, to write to; None where the host does not see it."""
        if not self._device.is_host and not self._device.asynchronous:
            return None  # its commands may use the memory
        mapped, offset = storage.buffer.mapped, storage.span.offset
        return None if mapped is None else mapped[offset : offset + storage.nbytes]

    def deliver(self, storage: Storage, array: npt.NDArray[Any]) -> Callable[[], None] | None:
        """Copy a host array to a storage of its size from :meth:`reserve`; it may be changed at once.

        Returns:
            For :attr:`Storage.pending`: lets the device's later commands wait for the copy; None when done.
        """
        memory = self.host_memory(storage)
        if memory is not None:
            memory.view(array.dtype).reshape(array.shape)[...] = array
        elif self._device.asynchronous and array.nbytes:
            return functools.partial(self._wait_for, self._beside.deliver(storage, array))
        elif array.nbytes:
            with self._lock:
                self._transfers.write(storage, array)
        return None

    def _wait_for(self, event: Event) -> None:
        with self._lock:
            self._stream.wait_event(event)
            self._transfers.device_busy = True

    def download_later(
        self, storage: Storage, nbytes: int, start: int = 0, *, beside: bool = False
    ) -> Download:
        """Bytes of a storage from `start` on, as the commands so far leave them; it does not wait for them.

        Args:
            storage: its contents. It may be written or freed at once.
            nbytes: how many.
            start: the first.
            beside: copy beside the commands that follow, which must not write the storage.

        Raises:
            OutOfMemoryError: there is no host memory for them.
            DeviceLostError
        """
        device = self._device
        listeners.refuse("reads elements of a tensor on the host")
        storage.settle()
        if device.is_host:
            data = storage.buffer.data[start : start + nbytes]
            if device.simulated is None:
                return arrived(device.name, data.copy())
            kept = data.copy() if device.simulated.computes else data  # otherwise nothing is written there
            return Download(device.name, nbytes, link.send(device.simulated, nbytes), lambda: kept)
        if recorder.active is not None or not device.asynchronous or not nbytes:
            skew = start % 4  # backends copy from whole words on
            out = np.empty(skew + nbytes, np.uint8)
            device.download(storage, out, start - skew)
            return arrived(device.name, out[skew:])
        self._transfers.device_busy = True
        source = Span(storage.buffer, storage.span.offset + start, nbytes)
        coming = self._beside.download_beside(storage, source) if beside else self._beside.download(source)
        coming.look = functools.partial(device.index_errors.look, device.index_errors.count)
        return coming

    def note(self, task: Task) -> None:
        """Let :meth:`Device.synchronize` wait for a copy to or from another device."""
        with self._lock:
            self._drop_done()
            self._noted.append(task)

    def pin(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of a host array in memory that the device copies from by itself."""
        with self._lock:
            return self._transfers.pin(array)

    def wait(self) -> None:
        """Wait for the copies that were noted."""
        with self._lock:
            copies = tuple(self._noted)
        for task in copies:
            task.wait()
        self._drop_done()

    def forget(self) -> None:
        """In a forked child: copies by the parent's threads."""
        self._noted.clear()

    def _drop_done(self) -> None:
        with self._lock:
            while self._noted and self._noted[0].done():
                self._noted.popleft()
