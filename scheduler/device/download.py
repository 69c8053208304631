"""Bytes on their way from a device to the host."""

from __future__ import annotations

from collections.abc import Callable

from dl4all.errors import DeviceError
from dl4all.runtime import fork
from dl4all.runtime.completed_event import FINISHED
from dl4all.runtime.protocols import Bytes, Event


class Download:
    """The result of ``device.copies.download_later``. Every method may be called from any thread.

    Args:
        name: of the device.
        nbytes: how many come.
        event: comes when they are there.
        fetch: gives them then.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([1, 2, 3], dtype="uint8", device="cpu")
        >>> x.device.copies.download_later(x.storage, 2, start=1).wait().tolist()
        [2, 3]
    """

    __slots__ = ("_data", "_event", "_fetch", "_lock", "_name", "look", "nbytes")

    def __init__(self, name: str, nbytes: int, event: Event, fetch: Callable[[], Bytes]) -> None:
        self.nbytes = nbytes
        self._name = name
        self._event = event
        self._fetch: Callable[[], Bytes] | None = fetch
        self._data: Bytes | None = None
        self._lock = fork.lock()
        self.look: Callable[[], None] | None = None  # raises what kernels before it have found

    def query(self) -> bool:
        """Whether they are there.

        Raises:
            DeviceLostError
        """
        return self._event.query()

    def wait(self, timeout: float | None = None) -> Bytes:
        """The bytes, when they are there; every call gives the same array.

        Args:
            timeout: at most so many seconds; for a simulated device, of the virtual clock.

        Raises:
            DeviceError: they did not come in time, or the device was closed.
            DeviceLostError
            ArgumentError: an index that an earlier op took was out of range.
        """
        if not self._event.synchronize(timeout):
            raise DeviceError(
                f"[Download] {self._name} has not sent {self.nbytes} bytes within {timeout} seconds; wait "
                "longer, or go on without it"
            )
        with self._lock:
            if self._fetch is not None:
                self._data = self._fetch()
                self._fetch = None  # with what it keeps alive
            look, self.look = self.look, None
            if look is not None:
                look()
            assert self._data is not None
            return self._data


def arrived(name: str, data: Bytes) -> Download:
    """A download that was waited for."""
    return Download(name, data.size, FINISHED, lambda: data)
