"""The part of a batch that a thread works on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from dl4all.multi_device.data_parallel.rendezvous import Rendezvous
from dl4all.ops.random.generator import ShardGenerator, State, drawing_from
from dl4all.runtime.simulated import clock
from dl4all.scheduler.device.device import Device


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
        start, rows: which rows of the batch these are.
        total: the rows of the batch.
        rendezvous: where the shards exchange values.
    """

    def __init__(
        self, device: Device, party: int, parties: int, start: int, rows: int, total: int, meeting: Rendezvous
    ) -> None:
        self.device = device
        self.party, self.parties = party, parties
        self.start, self.rows, self.total = start, rows, total
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
        return self.parties > 1

    def exchange(self, value: Any) -> list[Any]:
        """Give a value and get those of all shards, in order. All shards do so in the same order.

        Raises:
            Interrupted: another shard has failed.
        """
        self._exchanges += 1
        begun = self.seconds()
        values = self._meeting.exchange(self.party, self._exchanges, value)
        self.waited += self.seconds() - begun
        return values

    def meet_again(self, meeting: Rendezvous) -> None:
        """Exchange values of another pass elsewhere."""
        self._meeting, self._exchanges = meeting, 0

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
def working_on(shard: Shard, random: State) -> Iterator[ShardGenerator]:
    """Within, this thread works on a shard: it draws the numbers that the whole batch draws for its rows."""
    before, _current.shard = _current.shard, shard
    generator = ShardGenerator(random, shard.start, shard.rows, shard.total)
    try:
        with drawing_from(generator):
            yield generator
    finally:
        _current.shard = before
