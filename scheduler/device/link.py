"""The time that copies to and from simulated devices take on their links."""

from __future__ import annotations

import functools
from typing import NamedTuple

from dl4all.allocator.storage import Storage
from dl4all.errors import DeviceError, OutOfMemoryError
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import SimulatedBackend


class Arrival(NamedTuple):
    """An event at a time of the virtual clock, or the error for which it never comes."""

    seconds: float
    error: DeviceError | None = None

    def query(self) -> bool:
        """Whether it has come for this thread."""
        if self.error is not None:
            raise self.error
        return clock.now() >= self.seconds

    def synchronize(self, timeout: float | None = None) -> bool:
        """Let this thread wait for it, at most `timeout` seconds; returns whether it has come."""
        if self.error is not None:
            raise self.error
        latest = self.seconds if timeout is None else clock.now() + timeout
        clock.advance_to(min(self.seconds, latest))
        return self.seconds <= latest

    def await_each_time(self) -> bool:
        """For :attr:`Storage.pending`: each thread has a clock of its own, so each waits."""
        return self.synchronize()


NOW = Arrival(0.0)
"""For bytes that the host has."""


def send(simulated: SimulatedBackend, nbytes: int) -> Arrival:
    """Let bytes go to the host over the link when all kernels so far have run; it does not wait.

    Raises:
        OutOfMemoryError
    """
    try:
        return Arrival(simulated.download_later(nbytes)) if nbytes else NOW
    except OutOfMemoryError:
        raise
    except DeviceError as error:
        return Arrival(0.0, error.with_traceback(None))  # whose frames hold the memory that is copied


def receive(simulated: SimulatedBackend, storage: Storage) -> None:
    """Let what a new storage holds come over the link; kernels that do not use it do not wait.

    Raises:
        DeviceError
    """
    if storage.nbytes:
        arrival = simulated.upload(storage.nbytes)
        storage.pending = functools.partial(simulated.wait_until, arrival)


def receive_later(simulated: SimulatedBackend, storage: Storage, sent: Arrival = NOW) -> None:
    """:func:`receive` for what the host has when `sent` comes. Errors are raised where the storage is used.

    Raises:
        OutOfMemoryError
    """
    if not storage.nbytes:
        return
    error = sent.error
    if error is None:
        try:
            arrival = simulated.upload(storage.nbytes, sent.seconds)
        except OutOfMemoryError:
            raise
        except DeviceError as raised:
            error = raised.with_traceback(None)
        else:
            storage.pending = functools.partial(simulated.wait_until, arrival)
            return
    storage.pending = Arrival(0.0, error).await_each_time
