"""Adds up the gradients of shards, in buckets, while the devices still compute others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.multi_device.data_parallel.copies import Fetch
from dl4all.multi_device.data_parallel.rendezvous import Interrupted, Rendezvous
from dl4all.nn.module import Parameter
from dl4all.ops.core.tensor_base import TensorBase

BUCKET_BYTES = 4 << 20
"""Of gradients that go to the host together: small enough to come early, large enough to fill a link."""


def buckets_of(parameters: Sequence[Parameter]) -> list[list[int]]:
    """The numbers of parameters, in buckets; the last layers come first, as their gradients do."""
    buckets: list[list[int]] = []
    room = 0
    for number in reversed(range(len(parameters))):
        nbytes = parameters[number].numel() * parameters[number].dtype.itemsize
        if not buckets or nbytes > room:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(number)
        room -= nbytes
    return buckets


class Collector:
    """Takes the gradients of one shard as they are computed, and gives them away in buckets.

    Args:
        leaves: the parameters of the shard's replica.
        buckets: of their numbers.
        party: the number of the shard.
        meeting: where the buckets are taken from.
        stays: whether the gradients stay on their device, because they are added up there.
    """

    def __init__(
        self,
        leaves: Sequence[TensorBase],
        buckets: list[list[int]],
        party: int,
        meeting: Rendezvous,
        *,
        stays: bool,
    ) -> None:
        self.kept: dict[int, Any] = {}
        """The gradients that stay, by the numbers of the parameters."""
        self.others: dict[int, Any] = {}
        """The gradients of leaves that are no parameters, by the identities of the leaves."""
        self._numbers = {id(leaf): number for number, leaf in enumerate(leaves)}
        self._bucket_of = {number: b for b, bucket in enumerate(buckets) for number in bucket}
        self._missing = [len(bucket) for bucket in buckets]
        self._ready: list[dict[int, Fetch]] = [{} for _ in buckets]
        self._party, self._meeting, self._stays = party, meeting, stays

    def add(self, leaf: TensorBase, gradient: TensorBase) -> None:
        """Take the whole gradient of a leaf."""
        number = self._numbers.get(id(leaf))
        if number is None:
            self.others[id(leaf)] = gradient
        elif self._stays:
            self.kept[number] = gradient
        else:
            bucket = self._bucket_of[number]
            self._ready[bucket][number] = Fetch(gradient, "reduce")
            self._missing[bucket] -= 1
            if not self._missing[bucket]:
                self._give(bucket)

    def finish(self) -> None:
        """Give the buckets of which some parameters got no gradient."""
        for bucket, missing in enumerate(self._missing):
            if missing and not self._stays:
                self._give(bucket)

    def _give(self, bucket: int) -> None:
        self._meeting.give((self._party, bucket), self._ready[bucket])


def reduce(
    buckets: list[list[int]], parties: Sequence[int], meeting: Rendezvous
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """The sums of the gradients of parameters, with the parameters' numbers, as they come.

    They are added in the order of `parties`: which device comes first makes no difference.

    Raises:
        Interrupted: a shard has failed.
    """
    for bucket in range(len(buckets)):
        sums: dict[int, npt.NDArray[Any]] = {}
        for party in parties:
            fetches = meeting.take((party, bucket), party)
            for number in buckets[bucket]:
                if number in fetches:
                    array = _fetched(fetches[number], party, meeting)
                    if number in sums:
                        with np.errstate(all="ignore"):  # inf and nan come out quietly, as on every device
                            sums[number] += array
                    else:
                        sums[number] = np.array(array)
        yield from sums.items()


def _fetched(fetch: Fetch, party: int, meeting: Rendezvous) -> npt.NDArray[Any]:
    try:
        return fetch.wait()
    except BaseException as error:
        meeting.fail(party, error)
        raise Interrupted("[parallel] gradients did not come") from error
