"""Adds up the gradients of shards, in buckets, while the devices still compute others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dl4all.multi_device.data_parallel.copies import Fetch
from dl4all.multi_device.data_parallel.rendezvous import Interrupted, Rendezvous
from dl4all.nn.module import Parameter
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.device.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Array = npt.NDArray[Any]

BUCKET_BYTES = 4 << 20
"""Of gradients that go to the host together: small enough to come early, large enough to fill a link."""


class Bucket:
    """Parameters whose gradients go together, one behind the other in an array.

    Args:
        numbers: of the parameters.
        parameters: these.
    """

    def __init__(self, numbers: Sequence[int], parameters: Sequence[Parameter]) -> None:
        self.numbers, self.parameters = list(numbers), list(parameters)
        self.dtype = parameters[0].dtype
        ends = [0, *accumulate(parameter.numel() for parameter in parameters)]
        self.slices = [slice(start, end) for start, end in pairwise(ends)]
        self.size = ends[-1]

    def views(self, flat: Array, used: Sequence[bool], device: Device) -> dict[int, Tensor]:
        """The gradients on a device, by the numbers of the parameters; of those that have one."""
        if not any(used):
            return {}
        whole = from_numpy(flat[: self.size], device)
        return {
            number: whole[piece].reshape(parameter.shape)
            for number, parameter, piece, has in zip(
                self.numbers, self.parameters, self.slices, used, strict=True
            )
            if has
        }


def buckets_of(parameters: Sequence[Parameter], nbytes: int = BUCKET_BYTES) -> list[Bucket]:
    """The trainable parameters in buckets that end when they are full, each of one dtype.

    The last layers come first, as their gradients do.
    """
    buckets: list[list[int]] = []
    held = nbytes
    for number in reversed(range(len(parameters))):
        parameter = parameters[number]
        if not parameter.requires_grad:
            continue
        if held >= nbytes or parameters[buckets[-1][-1]].dtype != parameter.dtype:
            buckets.append([])
            held = 0
        buckets[-1].append(number)
        held += parameter.numel() * parameter.dtype.itemsize
    return [Bucket(numbers, [parameters[number] for number in numbers]) for numbers in buckets]


class GradientReduction(Protocol):
    """Sums of buckets over processes, kept: a pass that is done again gets the same ones."""

    def begin(self, index: int, bucket: Bucket, flat: Array) -> SummedBucket:
        """Begin to add up a bucket.

        Args:
            index: of the bucket; they come in order.
            bucket: its layout.
            flat: this process's gradients, and for each a number above 0 if there is one; nobody else's.
        """


class SummedBucket(Protocol):
    """A bucket on its way."""

    flat: Array

    def is_completed(self) -> bool:
        """Whether all processes' gradients are in it; never waits."""

    def wait(self) -> object:
        """Wait for that."""


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
        buckets: Sequence[Bucket],
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
        self._bucket_of = {number: b for b, bucket in enumerate(buckets) for number in bucket.numbers}
        self._missing = [len(bucket.numbers) for bucket in buckets]
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
    buckets: Sequence[Bucket],
    parties: Sequence[int],
    meeting: Rendezvous,
    network: GradientReduction | None = None,
) -> Iterator[tuple[Bucket, Array, list[bool]]]:
    """The sums of the gradients of each bucket, and which parameters have one, as they come.

    They are added in the order of `parties`: which device comes first makes no difference. With a `network`,
    a bucket goes there when this process's devices have given it, and the next one is added up meanwhile.

    Raises:
        Interrupted: a shard has failed.
        DistNetworkError: another process has.
    """
    under_way: deque[tuple[Bucket, SummedBucket]] = deque()
    for index, bucket in enumerate(buckets):
        fetched = [meeting.take((party, index), party) for party in parties]
        flat, used = _added(bucket, fetched, parties, meeting)
        if network is None:
            yield bucket, flat, used
            continue
        under_way.append((bucket, network.begin(index, bucket, flat)))
        while under_way and under_way[0][1].is_completed():
            yield _arrived(*under_way.popleft())
    for item in under_way:
        yield _arrived(*item)


def _added(
    bucket: Bucket, fetched: Sequence[dict[int, Fetch]], parties: Sequence[int], meeting: Rendezvous
) -> tuple[Array, list[bool]]:
    """The sum of several parties' gradients, followed by 1 for each parameter that has one."""
    flat = np.zeros(bucket.size + len(bucket.numbers), bucket.dtype)
    used = [False] * len(bucket.numbers)
    with np.errstate(all="ignore"):  # inf and nan come out quietly, as on every device
        for party, fetches in zip(parties, fetched, strict=True):
            for position, (number, piece) in enumerate(zip(bucket.numbers, bucket.slices, strict=True)):
                if number not in fetches:
                    continue
                array = _fetched(fetches[number], party, meeting).reshape(-1)
                if used[position]:
                    flat[piece] += array
                else:
                    flat[piece] = array
                used[position] = True
    flat[bucket.size :] = used
    return flat, used


def _arrived(bucket: Bucket, summed: SummedBucket) -> tuple[Bucket, Array, list[bool]]:
    summed.wait()
    return bucket, summed.flat, [bool(flag) for flag in summed.flat[bucket.size :] > 0]


def _fetched(fetch: Fetch, party: int, meeting: Rendezvous) -> Array:
    try:
        return fetch.wait()
    except BaseException as error:
        meeting.fail(party, error)
        raise Interrupted("[parallel] gradients did not come") from error
