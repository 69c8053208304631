"""DataLoader: batches of a data set, prepared by threads while the network computes."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from dl4all.data.batch import collate, map_arrays
from dl4all.data.dataset import Dataset, TensorDataset
from dl4all.data.prefetch import Indices, Prefetch, Reading, Worker
from dl4all.errors import ArgumentError, DataError
from dl4all.ops.core import limits
from dl4all.ops.random.generator import default_generator
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device
from dl4all.tensor.arguments import checked_state
from dl4all.tensor.creation import from_numpy

Collate = Callable[[list[Any]], Any]
Key = tuple[int, int]
"""What an order follows from: a seed and an epoch, or the seed and the counter of a generator."""

MOST_SEED = 2**64 - 1


class DataLoader:
    """Batches of a data set, as tensors on a device.

    One iteration goes once through the data: an epoch. With `shuffle` each epoch has its own order. It is
    drawn from the default generator when the iteration begins, so that :func:`dl4all.manual_seed` makes it
    repeatable; with a `seed` of the loader's own it depends on that and the epoch's number only. Either way
    it is the same on every machine. After :meth:`load_state_dict` the next iteration continues an interrupted
    epoch with its next batch; any other one begins with a first batch, also after a loop that was left.

    A loop may be left at any moment, by ``break``, an error or Ctrl-C: no thread outlives the batch that it
    is at, none holds up the end of the process, and the loader can be used again. What the data set raises
    is raised at the batch where it happened. StopIteration would end the loop as if the epoch were complete,
    so it comes as a DataError; so do exceptions by which a worker would end the process, such as SystemExit.

    Args:
        dataset: an object with ``len()`` and ``[i]``.
        batch_size: how many samples a batch has; the last batch may have fewer.
        shuffle: take the samples in random order.
        num_workers: how many threads read samples and collate batches ahead of their use; one more thread
            uploads the next batch while the device computes with the present one. With 0 a batch is
            prepared when it is asked for.
        drop_last: leave out a last batch that is not full.
        collate_fn: makes a batch of a list of samples; by default :func:`collate`.
        prefetch: how many batches each worker prepares ahead.
        seed: the seed of the order; None draws each epoch's order from the default generator.
        device: the device of the batches; None leaves them NumPy arrays.
        timeout: how many seconds to wait for a batch of the workers, then to raise DataTimeoutError; 0 waits
            for ever.

    Raises:
        ArgumentError: the data set is empty or has no length, or a number is out of range.
        DataError: from the loop: the data set or `collate_fn` raised StopIteration, or ended a worker.
        DataTimeoutError: from the loop: a batch did not come in time.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.TensorDataset([[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> [y.tolist() for x, y in dl.data.DataLoader(data, batch_size=2, device="cpu")]
        [[0, 1], [0]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        num_workers: int = 0,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        prefetch: int = 2,
        seed: int | None = None,
        device: str | Device | None = "auto",
        timeout: float = 0.0,
    ) -> None:
        self.batch_size = _integer("batch_size", batch_size, 1)
        self.num_workers = _integer("num_workers", num_workers, 0)
        self.prefetch = _integer("prefetch", prefetch, 1)
        self.seed = None if seed is None else _integer("seed", seed, 0, MOST_SEED)
        self.timeout = _seconds(timeout)
        if self.timeout and not self.num_workers:
            raise ArgumentError(
                f"[DataLoader] timeout {timeout} needs num_workers of at least 1: without workers the data "
                "set is read in the loop itself"
            )
        if collate_fn is not None and not callable(collate_fn):
            raise ArgumentError(
                f"[DataLoader] collate_fn must be a function of a list of samples, got {collate_fn!r}"
            )
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ArgumentError(
                f"[DataLoader] a data set has len() and [i]; {type(dataset).__name__} lacks one of them. Put "
                "what can only be iterated over into a list"
            )
        if len(dataset) == 0:
            raise ArgumentError("[DataLoader] the data set is empty")
        self.dataset, self.shuffle, self.drop_last = dataset, shuffle, drop_last
        self.device = device
        self._collate = collate_fn
        self._epoch = 0  # the epoch of the next iteration
        self._next = 0  # its first batch that was not given out
        self._key: Key | None = None  # its order, if it has begun
        self._interrupted = False  # the next iteration continues this epoch

    def __len__(self) -> int:
        """How many batches an epoch has."""
        count = len(self.dataset)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if not self._interrupted:
            self._next, self._key = 0, None
        self._interrupted = False
        epoch, first = self._epoch, self._next
        key = self._key = self._key or self._new_key(epoch)
        batches = self._indices(key)[first:]
        count = first + len(batches)
        made = self._prefetched(batches, first) if self.num_workers else self._one_by_one(batches, first)
        with closing(made):
            for number, batch in enumerate(made, first + 1):
                # The position moves before the yield, so that no batch is given out twice.
                last = number == count
                self._epoch, self._next, self._key = (epoch + 1, 0, None) if last else (epoch, number, key)
                yield batch

    def state_dict(self) -> dict[str, Any]:
        """The position, from which another loader of the same data can continue.

        Without a seed of the loader's own, the orders of later epochs follow from the default generator; its
        state is kept apart (:func:`dl4all.get_rng_state`).
        """
        order = None if self._key is None else list(self._key)
        return {"epoch": self._epoch, "batch": self._next, "seed": self.seed, "order": order, **self._facts()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position of another loader, with its seed. Nothing changes unless all fits.

        Args:
            state: from :meth:`state_dict`, of this version or of one before it.

        Raises:
            ArgumentError: the state is of other data, of other batches, or none at all; the message lists
                everything that differs.
        """
        self._epoch, self._next, self.seed, self._key = self._check_state(state)
        self._interrupted = True

    def _check_state(self, state: Any) -> tuple[int, int, int | None, Key | None]:
        """The epoch, the batch, the seed and the order of a state.

        Raises:
            ArgumentError: it is none of this loader's data and batches.
        """
        found = checked_state("DataLoader", state, ("epoch", "batch", "seed"))
        differences = [
            f"{name} is {found[name]} in the state and {value} here"
            for name, value in self._facts().items()
            if name in found and found[name] != value
        ]
        if differences:
            raise ArgumentError(f"[DataLoader] the state does not fit: {'; '.join(differences)}")
        epoch, batch = (_integer(f"the state's {name}", found[name], 0) for name in ("epoch", "batch"))
        seed = None if found["seed"] is None else _integer("the state's seed", found["seed"], 0, MOST_SEED)
        key, order = None, found.get("order")
        if order is not None:
            if not isinstance(order, (list, tuple)) or len(order) != 2:
                raise ArgumentError(f"[DataLoader] the state's order {order!r} must be two integers or None")
            first, second = (_integer("the state's order", number, 0, MOST_SEED) for number in order)
            key = first, second
        if batch and batch >= len(self):
            raise ArgumentError(
                f"[DataLoader] the state is at batch {batch} of an epoch, and this loader has only "
                f"{len(self)} batches"
            )
        return epoch, batch, seed, key

    def _facts(self) -> dict[str, Any]:
        """What a position says nothing without."""
        return {
            "samples": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": bool(self.shuffle),
            "drop_last": bool(self.drop_last),
        }

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration at the first batch of an epoch.

        Args:
            epoch: the number of the epoch, from 0. Only with a seed does the order follow from it.

        Raises:
            ArgumentError: the number is no int, or below 0.
        """
        self._epoch, self._next = _integer("epoch", epoch, 0), 0
        self._key, self._interrupted = None, False

    def _new_key(self, epoch: int) -> Key:
        """What the order of an epoch that begins follows from."""
        if self.seed is not None:
            return self.seed, epoch
        return default_generator().draw(1) if self.shuffle else (0, 0)

    def _indices(self, key: Key) -> list[Indices]:
        """The samples of each batch of an epoch."""
        count = len(self.dataset)
        if self.shuffle:
            philox = np.random.Philox(key=np.array(key, np.uint64))  # a list may become floats
            order = np.random.Generator(philox).permutation(count)
        else:
            order = np.arange(count)
        return [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(len(self))]

    def _one_by_one(self, batches: list[Indices], first: int) -> Generator[Any, None, None]:
        """Batches made when they are asked for."""
        target = None if self.device is None else device(self.device)
        for number, indices in enumerate(batches, first):
            batch = self._batch(Reading(number), indices)
            yield batch if target is None else _on_device(batch, target)

    def _prefetched(self, batches: list[Indices], first: int) -> Generator[Any, None, None]:
        """Batches made by threads."""
        target = None if self.device is None else device(self.device)  # "auto" depends on the thread
        ahead = None if target is None or target.is_host else target
        limit = self.num_workers * self.prefetch
        timeout = min(self.timeout, threading.TIMEOUT_MAX) or None
        made = iter(Prefetch(self._batch, batches, first, self.num_workers, limit, ahead, timeout))
        with closing(made):
            for batch in made:
                yield batch if target is None or ahead is not None else _on_device(batch, target)

    def _batch(self, reading: Reading, indices: Indices) -> Any:
        """The batch of some samples.

        Raises:
            DataError: in place of exceptions that would end more than this batch.
        """
        try:
            if self._collate is None and type(self.dataset).__getitem__ is TensorDataset.__getitem__:
                return self.dataset[indices]  # type: ignore[index]  # all samples in one selection
            samples = []
            for index in indices.tolist():
                reading.sample = index
                samples.append(self.dataset[index])
            reading.sample = None
            return (self._collate or collate)(samples)
        except Exception as error:
            if isinstance(error, StopIteration):
                raise _ended(reading, error, "would end the loop as if the epoch were complete") from error
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) or isinstance(threading.current_thread(), Worker):
                raise _ended(reading, error, "is no error of a batch") from error
            raise


def _ended(reading: Reading, error: BaseException, why: str) -> DataError:
    """The error in place of an exception that is no error of a batch."""
    source = "collate_fn" if reading.sample is None else f"the data set at sample {reading.sample}"
    name = type(error).__name__
    return DataError(
        f"[DataLoader] {name}({str(error)!r}) came out of {source}, in batch {reading.number}, and {why}. "
        "Raise IndexError or an error of your own there"
    )


def _on_device(batch: Any, target: Device) -> Any:
    return map_arrays(batch, lambda array: from_numpy(np.ascontiguousarray(array), target))


_integer = functools.partial(limits.integer, "DataLoader")


def _seconds(timeout: Any) -> float:
    """The timeout as a float.

    Raises:
        ArgumentError: it is no number of seconds.
    """
    try:
        seconds = float(timeout)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not seconds >= 0:
        raise ArgumentError(
            f"[DataLoader] timeout {timeout!r} must be a number of seconds, or 0 to wait for ever"
        )
    return seconds
