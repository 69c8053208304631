"""The part of a batch that a thread works on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy.typing as npt

from dl4all.multi_device.data_parallel.rendezvous import Rendezvous
from dl4all.ops.random.generator import ShardGenerator, State, drawing_from
from dl4all.runtime.simulated import clock
from dl4all.scheduler.device.device import Device

Array = npt.NDArray[Any]


class PeerExchange(Protocol):
    """A pass over a batch as other processes see it."""

    def exchange(self, number: int, array: Array) -> list[Array]:
        """The arrays of all processes at the exchange of that number, in the order of their ranks."""


class Change(Protocol):
    """A change of the model."""

    def bring(self) -> None:
        """Bring what it needs to the model's device."""

    def apply(self) -> None:
        """Make it."""


class Shard:
    """Rows of a batch, computed by one device while others compute the rest.

    Args:
        device: computes it.
        party: the number of this shard among those of the batch.
        parties: how many there are.
        start, rows: which rows of this process these are.
        meeting: where the shards exchange values.
        peers: where other processes that compute the batch, too, exchange theirs.
    """

    def __init__(
        self,
        device: Device,
        party: int,
        parties: int,
        start: int,
        rows: int,
        meeting: Rendezvous,
        peers: PeerExchange | None = None,
    ) -> None:
        self.device = device
        self.party, self.parties = party, parties
        self.start, self.rows = start, rows
        self._peers = peers
        self.waited = 0.0  # seconds in which this shard waited for others
        self.afterwards: list[Change] = []  # to be made when all shards have succeeded
        self._meeting = meeting
        self._exchanges = 0

    @property
    def first(self) -> bool:
        """Whether this shard changes what belongs to all of them, such as running statistics."""
        return self.party == 0

    @property
    def several(self) -> bool:
        return self.parties > 1 or self._peers is not None

    def combined(self, array: Array, combine: Callable[[list[Array]], Array]) -> Array:
        """Give an array, and get what `combine` makes of those of all shards, of other processes, too.

        All shards do so in the same order.

        Args:
            array: of one shape and dtype in all shards.
            combine: makes one array of several, or of those that it has made.

        Raises:
            Interrupted: another shard has failed.
            DistNetworkError: another process has.
        """
        begun, number = self.seconds(), self._exchanges
        self._exchanges += 1
        whole = combine(self._meeting.exchange(self.party, number, array))
        if self._peers is not None:
            # One of the threads asks the other processes, and tells the rest.
            told = combine(self._peers.exchange(number, whole)) if self.first else None
            whole = self._meeting.exchange(self.party, ("peers", number), told)[0]
        self.waited += self.seconds() - begun
        return whole

    def meet_again(self, meeting: Rendezvous, peers: PeerExchange | None) -> None:
        """Exchange values of another pass elsewhere."""
        self._meeting, self._peers, self._exchanges = meeting, peers, 0

    def seconds(self) -> float:
        """The present time on the device's clock."""
        return time.perf_counter() if self.device.simulated is None else clock.now()


class _CurrentShard(threading.local):
    shard: Shard | None = None


_current = _CurrentShard()


def current() -> Shard | None:
    """The shard that this thread works on."""
    return _current.shard


@contextlib.contextmanager
def working_on(shard: Shard, random: State, origin: int, total: int) -> Iterator[ShardGenerator]:
    """Within, this thread works on a shard: it draws the numbers that the whole batch draws for its rows.

    Args:
        shard: the rows.
        random: the state of the generator from which the whole batch draws.
        origin: the first row of this process within the batch.
        total: the rows of the batch.
    """
    before, _current.shard = _current.shard, shard
    generator = ShardGenerator(random, origin + shard.start, shard.rows, total, origin)
    try:
        with drawing_from(generator):
            yield generator
    finally:
        _current.shard = before
