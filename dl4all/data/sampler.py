"""Samplers: the order in which a loader takes the samples of a data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.distributed.process_group import world as groups
from dl4all.errors import ArgumentError
from dl4all.ops.core import limits
from dl4all.ops.random.generator import Generator, default_generator

PIECE = 4096
"""The number of samples that are drawn at once, with replacement."""
Key = tuple[int, int]
"""The key of an order: a seed and an epoch, or the seed and the counter of a generator."""


def random_numbers(key: Key) -> np.random.Generator:
    """NumPy's generator of the numbers that follow from a key, the same on every machine."""
    return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))  # a list may become floats


def drawn_key(generator: Generator | None) -> Key:
    """The next key of a generator, or of the default one."""
    return (default_generator() if generator is None else generator).draw(1)


class Sampler:
    """Base class of samplers: iterating gives indices of samples, and ``len()`` how many.

    Args:
        data_source: accepted and not used, as in PyTorch.

    Example:
        >>> import dl4all as dl
        >>> class Backwards(dl.data.Sampler):
        ...     def __init__(self, data):
        ...         self.data = data
        ...     def __iter__(self):
        ...         return iter(reversed(range(len(self.data))))
        ...     def __len__(self):
        ...         return len(self.data)
        >>> data = dl.data.TensorDataset([1.0, 2.0, 3.0])
        >>> [x.tolist() for x, in dl.data.DataLoader(data, 2, sampler=Backwards(data), device="cpu")]
        [[3.0, 2.0], [1.0]]
    """

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, data_source: Any = None) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} needs a method __iter__ that gives indices")


class SequentialSampler(Sampler):
    """All samples in order.

    Args:
        data_source: a data set, or anything with ``len()``.

    Example:
        >>> import dl4all as dl
        >>> list(dl.data.SequentialSampler(["a", "b"]))
        [0, 1]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)

    def order(self, key: Key) -> npt.NDArray[np.int64]:
        """The indices of an epoch."""
        return np.arange(len(self.data_source))


class RandomSampler(Sampler):
    """Samples in random order, a new one for each iteration.

    Args:
        data_source: a data set, or anything with ``len()``.
        replacement: draw each sample from all of them, so that some come several times.
        num_samples: how many to draw; by default as many as there are.
        generator: draws the orders; by default the default generator.

    Raises:
        ArgumentError: `num_samples` is no int above 0, or `replacement` no bool.

    Example:
        >>> import dl4all as dl
        >>> order = list(dl.data.RandomSampler(range(5), generator=dl.Generator(3)))
        >>> sorted(order)
        [0, 1, 2, 3, 4]
        >>> order == list(dl.data.RandomSampler(range(5), generator=dl.Generator(3)))
        True
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise ArgumentError(f"[RandomSampler] replacement must be a bool, got {replacement!r}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = (
            None if num_samples is None else limits.integer("RandomSampler", "num_samples", num_samples, 1)
        )

    @property
    def num_samples(self) -> int:
        """The number of samples of an iteration."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        key = drawn_key(self.generator)
        return self._drawn(key) if self.replacement else iter(self.order(key).tolist())

    def _drawn(self, key: Key) -> Iterator[int]:
        """The samples of an order with replacement, piece by piece: scripts ask for 10^10 and stop early."""
        numbers, count = random_numbers(key), len(self.data_source)
        for first in range(0, self.num_samples, PIECE):
            yield from numbers.integers(count, size=min(PIECE, self.num_samples - first)).tolist()

    def __len__(self) -> int:
        return self.num_samples

    def order(self, key: Key) -> npt.NDArray[np.int64]:
        """The indices of an epoch."""
        numbers, count = random_numbers(key), len(self.data_source)
        if self.replacement:
            return np.asarray(numbers.integers(count, size=self.num_samples))
        rounds = [numbers.permutation(count) for _ in range(-(-self.num_samples // max(count, 1)))]
        return np.asarray(np.concatenate([np.empty(0, np.int64), *rounds])[: self.num_samples])


class SubsetRandomSampler(Sampler):
    """Some samples in random order, a new one for each iteration.

    Args:
        indices: the samples.
        generator: draws the orders; by default the default generator.

    Example:
        >>> import dl4all as dl
        >>> sorted(dl.data.SubsetRandomSampler([7, 3, 5]))
        [3, 5, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        order = random_numbers(drawn_key(self.generator)).permutation(len(self.indices))
        return (self.indices[i] for i in order.tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Samples drawn by weights: of rare classes more often than they occur, for example.

    Args:
        weights: one number of at least 0 for each sample: a sequence, an array or a tensor.
        num_samples: how many to draw.
        replacement: draw each sample from all of them; without it none comes twice.
        generator: draws them; by default the default generator.

    Raises:
        ArgumentError: the weights are no finite numbers of at least 0 in one row, are all 0, or without
            `replacement` fewer than `num_samples` are above 0.

    Example:
        >>> import dl4all as dl
        >>> set(dl.data.WeightedRandomSampler([0.0, 1.0, 0.0, 2.0], 20)) <= {1, 3}
        True
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        name = "WeightedRandomSampler"
        if not isinstance(replacement, bool):
            raise ArgumentError(f"[{name}] replacement must be a bool, got {replacement!r}")
        self.num_samples = limits.integer(name, "num_samples", num_samples, 1)
        self.replacement, self.generator = replacement, generator
        self.weights = np.asarray(weights.tolist() if hasattr(weights, "tolist") else weights, np.float64)
        if self.weights.ndim != 1 or not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise ArgumentError(
                f"[{name}] weights must be finite numbers of at least 0 in one row, got shape "
                f"{self.weights.shape}"
            )
        usable = int(np.count_nonzero(self.weights))
        if usable < (1 if replacement else self.num_samples):
            raise ArgumentError(
                f"[{name}] {usable} weights are above 0, too few for {self.num_samples} samples; pass "
                "replacement=True, or fewer samples"
            )

    def __iter__(self) -> Iterator[int]:
        numbers = random_numbers(drawn_key(self.generator))
        shares = self.weights / self.weights.sum()
        drawn = numbers.choice(len(shares), self.num_samples, self.replacement, shares)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of the indices that another sampler gives.

    Args:
        sampler: gives indices.
        batch_size: how many a list has; the last one may have fewer.
        drop_last: leave out a last list that is not full.

    Raises:
        ArgumentError: `batch_size` is no int above 0, or `drop_last` no bool.

    Example:
        >>> import dl4all as dl
        >>> list(dl.data.BatchSampler(dl.data.SequentialSampler(range(5)), 2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if not isinstance(drop_last, bool):
            raise ArgumentError(f"[BatchSampler] drop_last must be a bool, got {drop_last!r}")
        self.sampler, self.drop_last = sampler, drop_last
        self.batch_size = limits.integer("BatchSampler", "batch_size", batch_size, 1)

    def __iter__(self) -> Iterator[list[Any]]:
        batch: list[Any] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]  # else a TypeError, as of any len()
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler):
    """The samples of one of several processes that train together, each with another part.

    All parts have the same length: without `drop_last` some samples at the start come twice.

    Args:
        dataset: a data set.
        num_replicas: how many processes there are; by default those of the process group, or one.
        rank: the number of this one, from 0; by default that in the process group, or 0.
        shuffle: take the samples in an order that follows from `seed` and the epoch.
        seed: the same in all processes.
        drop_last: leave out samples at the end instead of repeating some.

    Raises:
        ArgumentError: `rank` is not below `num_replicas`, or a number is no int in its range.

    Example:
        >>> import dl4all as dl
        >>> [list(dl.data.DistributedSampler(range(5), 2, rank, shuffle=False)) for rank in (0, 1)]
        [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        name = "DistributedSampler"
        self.dataset, self.shuffle, self.drop_last = dataset, shuffle, drop_last
        world = groups.world()
        size, own = (1, 0) if world is None else (world.size(), world.rank())
        count = size if num_replicas is None else num_replicas
        self.num_replicas = limits.integer(name, "num_replicas", count, 1)
        self.rank = limits.integer(name, "rank", own if rank is None else rank, 0, self.num_replicas - 1)
        self.seed, self.epoch = limits.integer(name, "seed", seed, 0, 2**64 - 1), 0
        count = len(dataset)
        self.num_samples = math.ceil(count / self.num_replicas)
        if drop_last:
            self.num_samples = count // self.num_replicas
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = (
            random_numbers((self.seed, self.epoch)).permutation(count) if self.shuffle else np.arange(count)
        )
        return iter(np.resize(order, self.total_size)[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Have the next iterations take the order of an epoch.

        Raises:
            ArgumentError: the epoch is no int, or below 0.
        """
        self.epoch = limits.integer("DistributedSampler", "epoch", epoch, 0, 2**64 - 1)
