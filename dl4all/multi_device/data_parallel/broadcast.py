"""Keeps the parameters and buffers of replicas equal to the model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dl4all.errors import DeviceError
from dl4all.multi_device.data_parallel.copies import Fetch, write
from dl4all.multi_device.data_parallel.model_parts import ModelParts
from dl4all.multi_device.replica import Replica
from dl4all.runtime.profiler.phase import phase
from dl4all.runtime.simulated import clock
from dl4all.runtime.threads import Condition
from dl4all.tensor.tensor import Tensor


class _Arrival:
    """Contents that one thread fetches and others wait for."""

    def __init__(self) -> None:
        self._changed = Condition()
        self.come = False
        self._array: Any = None
        self._error: BaseException | None = None
        self._time = 0.0

    def put(self, array: Any) -> None:
        with self._changed.lock:
            self._array, self._time, self.come = array, clock.now(), True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed.lock:
            self._error, self.come = error, True
            self._changed.notify_all()

    def take(self, timeout: float) -> Any:
        if not self._changed.wait_for(lambda: self.come, timeout) or self._error is not None:
            raise DeviceError("[parallel] the parameters did not come from the primary device")
        clock.advance_to(self._time)
        return self._array


class Broadcast:
    """Sends what has changed of a model to replicas, while they already compute.

    A use of a parameter waits for its contents, so the first layers begin before the last have arrived.

    Args:
        timeout: seconds that a replica waits for contents.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._sent: dict[tuple[Replica, int], tuple[Any, int, Any]] = {}  # from, version, to
        self._coming: list[_Arrival] = []  # that somebody may wait for

    def begin(self, replicas: Sequence[Replica], model: ModelParts) -> list[tuple[Fetch, _Arrival]]:
        """Let what is stale in replicas wait for its contents; returns what :meth:`send` is to bring.

        The primary device begins to send before it gets other work.

        Raises:
            DeviceError: the primary device has failed.
        """
        if not all(arrival.come for arrival in self._coming):
            self.stop(DeviceError("[parallel] an earlier batch was interrupted"))
        arrivals: dict[int, tuple[Fetch, _Arrival]] = {}
        self._coming = []
        try:
            for replica in replicas:
                for key, (source, made) in replica.pairs.items():
                    state = source.storage, source.storage.version, made.storage
                    if source.device is made.device or self._sent.get((replica, key)) == state:
                        continue
                    if key in model.unseen:
                        continue
                    if key not in arrivals:
                        arrivals[key] = Fetch(source, "download", self._timeout), _Arrival()
                        self._coming.append(arrivals[key][1])
                    self._sent[replica, key] = state
                    self._await(replica, key, made, arrivals[key][1])
        except BaseException as error:
            self.stop(error)
            raise
        return list(arrivals.values())

    def _await(self, replica: Replica, key: int, made: Tensor, arrival: _Arrival) -> None:
        storage = made.storage

        def arrive() -> None:
            storage.pending = None  # writing looks at it, too
            try:
                with phase("upload"):
                    write(made, arrival.take(self._timeout))
            except BaseException:
                storage.pending = arrive
                self._sent.pop((replica, key), None)
                raise

        storage.pending = arrive
        storage.version += 1

    def send(self, arrivals: Sequence[tuple[Fetch, _Arrival]]) -> None:
        """Bring contents from the primary device, in the order of the layers.

        Raises:
            DeviceError: it has failed; the replicas stop waiting.
        """
        try:
            for fetch, arrival in arrivals:
                arrival.put(fetch.wait())
        except BaseException as error:
            self.stop(error)
            raise

    def stop(self, error: BaseException) -> None:
        """Let nobody wait any more for what has not come yet; send all of it again the next time."""
        self._sent.clear()
        for arrival in self._coming:
            if not arrival.come:
                arrival.fail(error)

    def forget(self, replica: Replica) -> None:
        """A replica is gone."""
        self._sent = {key: state for key, state in self._sent.items() if key[0] is not replica}
