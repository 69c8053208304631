"""The exchange of a pass over a batch with other processes, over the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dl4all.distributed.process_group.group import Pending, ProcessGroup
from dl4all.multi_device.data_parallel.reduction import Array, Bucket, SummedBucket

NAME = "DistributedDataParallel"

Hook = Callable[[int, Bucket, Array], Any]
"""Begins the mean of a bucket over all processes; what it returns is waited for."""


class LayerExchange:
    """The arrays that layers of a pass exchange.

    Where the pass is computed again, as a device of this process has failed, the other processes are past
    it: it gets what came the first time.

    Args:
        group: of the processes; nothing else may use it.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._come: dict[int, list[Array]] = {}

    def exchange(self, number: int, array: Array) -> list[Array]:
        """The arrays of all processes, in the order of their ranks."""
        if number not in self._come:
            self._come[number] = self._group.all_gather(NAME, array)
        return self._come[number]


@dataclass
class PendingBucket:
    """A bucket, and what is waited for until it holds the sum of all processes."""

    flat: Array
    work: Pending

    def is_completed(self) -> bool:
        return self.work.is_completed()

    def wait(self) -> object:
        return self.work.wait()


class NetworkReduction:
    """The sums of a pass's buckets over all processes.

    Args:
        group: of the processes.
        empty: whether this process has no rows: what it has computed of none does not count.
        before: gradients of earlier passes that were kept from the network, by the parameters' numbers.
        hook: takes the place of the plain sum.
    """

    def __init__(
        self, group: ProcessGroup, *, empty: bool, before: dict[int, Array], hook: Hook | None = None
    ) -> None:
        self._group, self._empty, self._before, self._hook = group, empty, before, hook
        self._begun: dict[int, SummedBucket] = {}

    def begin(self, index: int, bucket: Bucket, flat: Array) -> SummedBucket:
        """Begin to add up a bucket, as a `GradientReduction` does."""
        if index not in self._begun:
            if self._empty:
                flat[...] = 0
            for position, (number, piece) in enumerate(zip(bucket.numbers, bucket.slices, strict=True)):
                if number in self._before:
                    with np.errstate(all="ignore"):
                        flat[piece] += self._before[number].reshape(-1)
                    flat[bucket.size + position] = 1
            if self._hook is None:
                work = self._group.all_reduce(NAME, flat)
            else:
                hook = self._hook
                if index - 1 in self._begun:
                    # Hooks begin other collectives when the first has come: processes must agree on their
                    # order.
                    self._begun[index - 1].wait()
                work = Pending(self._group, NAME, hook(index, bucket, flat), lambda: None)
            self._begun[index] = PendingBucket(flat, work)
        return self._begun[index]
