"""DataLoader: batches of a data set, prepared by threads while the network computes."""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import GenericAlias
from typing import Any

import numpy as np

from dl4all.data.batch import collate, default_convert, map_arrays
from dl4all.data.dataset import IterableDataset, Subset, TensorDataset
from dl4all.data.prefetch import Prefetch, Reading, Worker
from dl4all.data.sampler import BatchSampler, Key, RandomSampler, SequentialSampler, drawn_key
from dl4all.data.shard import LoaderShard, RowShare, Vacant, agreed, indices_of
from dl4all.data.stream import Exhausted, Streams
from dl4all.data.workers import WorkerInfo, batch_random, become_worker
from dl4all.errors import ArgumentError, DataError
from dl4all.ops.core import limits
from dl4all.ops.random.generator import Generator
from dl4all.scheduler.device.current import device
from dl4all.scheduler.device.device import Device
from dl4all.tensor.arguments import checked_state
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Collate = Callable[[Any], Any]

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

    Random numbers that are drawn while a sample is read, by transforms say, follow from the epoch's numbers
    and the batch's, so that they are the same with any number of workers.

    Parameters stand in PyTorch's order.

    Args:
        dataset: an object with ``len()`` and ``[i]``, or an :class:`IterableDataset`.
        batch_size: how many samples a batch has; the last batch may have fewer. None gives samples as they
            are, with their arrays as tensors.
        shuffle: take the samples in random order.
        sampler: gives the indices of the samples, in place of `shuffle`.
        batch_sampler: gives the indices of each batch, in place of `batch_size`, `shuffle`, `sampler` and
            `drop_last`.
        num_workers: how many threads read samples and collate batches ahead of their use; one more thread
            uploads the next batch while the device computes with the present one. With 0 a batch is
            prepared when it is asked for. They are threads of this process, unlike PyTorch's workers.
        collate_fn: makes a batch of a list of samples; by default :func:`collate`. Without batches it is
            called with each sample.
        pin_memory: accepted; batches are uploaded through pinned memory anyway.
        drop_last: leave out a last batch that is not full.
        timeout: how many seconds to wait for a batch of the workers, then to raise DataTimeoutError; 0 waits
            for ever.
        worker_init_fn: is called by each worker with its number before its first batch. NumPy's and Python's
            global generators are all threads' own: it need not seed them.
        multiprocessing_context: accepted; there are no processes.
        generator: draws the epochs' orders; by default the default generator.
        prefetch_factor: how many batches each worker prepares ahead; 2 by default.
        persistent_workers: accepted; starting threads takes no time.
        pin_memory_device: accepted.
        in_order: accepted; batches come in order.
        prefetch: another name for `prefetch_factor`.
        seed: the seed of the order; None draws each epoch's order from the generator.
        device: the device of the batches, of tensors as of arrays; None leaves them as `collate_fn` made
            them, NumPy arrays by default.

    Raises:
        ArgumentError: the data set is empty or has no length, a number is out of range, or arguments exclude
            each other.
        DataError: from the loop: the data set or `collate_fn` raised StopIteration, or ended a worker.
        DataTimeoutError: from the loop: a batch did not come in time.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.TensorDataset([[1.0], [2.0], [3.0]], [0, 1, 0])
        >>> [y.tolist() for x, y in dl.data.DataLoader(data, batch_size=2, device="cpu")]
        [[0, 1], [0]]
    """

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0.0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        prefetch: int | None = None,
        seed: int | None = None,
        device: str | Device | None = "auto",
    ) -> None:
        self.num_workers = _integer("num_workers", num_workers, 0)
        ahead = prefetch if prefetch_factor is None else prefetch_factor
        self.prefetch_factor = _integer("prefetch", 2 if ahead is None else ahead, 1)
        self.seed = None if seed is None else _integer("seed", seed, 0, MOST_SEED)
        self.timeout = _seconds(timeout)
        if self.timeout and not self.num_workers:
            raise ArgumentError(
                f"[DataLoader] timeout {timeout} needs num_workers of at least 1: without workers the data "
                "set is read in the loop itself"
            )
        for name, function in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
            if function is not None and not callable(function):
                what = "a list of samples" if name == "collate_fn" else "a worker's number"
                raise ArgumentError(f"[DataLoader] {name} must be a function of {what}, got {function!r}")
        self.iterable = isinstance(dataset, IterableDataset)
        if not self.iterable:
            if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
                raise ArgumentError(
                    f"[DataLoader] a data set has len() and [i]; {type(dataset).__name__} lacks one of them. "
                    "Put what can only be iterated over into a list, or make it an IterableDataset"
                )
            if sampler is None and batch_sampler is None and len(dataset) == 0:
                raise ArgumentError("[DataLoader] the data set is empty")
        self.dataset, self.shuffle, self.drop_last = dataset, bool(shuffle), bool(drop_last)
        self.device, self.collate_fn, self.worker_init_fn = device, collate_fn, worker_init_fn
        self.pin_memory, self.persistent_workers, self.generator = pin_memory, persistent_workers, generator
        self.multiprocessing_context = multiprocessing_context
        self._choose_samplers(sampler, batch_sampler, batch_size)
        self._epoch = 0  # the epoch of the next iteration
        self._next = 0  # its first batch that was not given out
        self._key: Key | None = None  # its random numbers, if it has begun
        self._interrupted = False  # the next iteration continues this epoch

    def _choose_samplers(self, sampler: Any, batch_sampler: Any, batch_size: int | None) -> None:
        """Set the samplers, and the size of batches.

        Raises:
            ArgumentError: arguments exclude each other.
        """
        given = {"sampler": sampler, "batch_sampler": batch_sampler}
        for name, value in given.items():
            if value is not None and not hasattr(value, "__iter__"):
                raise ArgumentError(
                    f"[DataLoader] {name} must give indices in a loop, got {value!r}; arguments after "
                    "shuffle stand in PyTorch's order, so pass num_workers=... by name"
                )
        if self.iterable and (self.shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError(
                "[DataLoader] an IterableDataset gives samples in its own order: leave out shuffle, sampler "
                "and batch_sampler"
            )
        if self.shuffle and sampler is not None:
            raise ArgumentError("[DataLoader] sampler and shuffle exclude each other")
        if batch_sampler is not None and (batch_size != 1 or self.shuffle or sampler or self.drop_last):
            raise ArgumentError(
                "[DataLoader] batch_sampler excludes batch_size, shuffle, sampler and drop_last: it says "
                "what each batch has"
            )
        if batch_size is None and self.drop_last:
            raise ArgumentError("[DataLoader] with batch_size None, no batch can be dropped by drop_last")
        self.batch_size = None if batch_size is None else _integer("batch_size", batch_size, 1)
        # Whether an epoch's order follows from its key, and batches can be sliced from it:
        self._own_order = sampler is None and batch_sampler is None and not self.iterable
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if self._own_order:
            self.sampler = (
                RandomSampler(self.dataset, generator=self.generator)
                if self.shuffle
                else SequentialSampler(self.dataset)
            )
        if batch_sampler is not None:
            self.batch_size = None
        elif not self.iterable and self.batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, self.batch_size, self.drop_last)

    @property
    def prefetch(self) -> int:
        """The number of batches that each worker prepares ahead."""
        return self.prefetch_factor

    def __len__(self) -> int:
        """The number of batches of an epoch.

        Raises:
            TypeError: the sampler, or the IterableDataset, has no length.
        """
        if self.iterable:
            count = len(self.dataset)
            size = 1 if self.batch_size is None else self.batch_size
            return count // size if self.drop_last else -(-count // size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(None)

    def shard(self, rank: int, world_size: int) -> LoaderShard:
        """The rows of one of several processes, which together get every batch of this loader.

        Processes have rows one behind the other by rank, which begin at multiples of 4, so that random
        numbers of rows are those that one process draws. The last batch may have no rows for some of them:
        those get arrays of length 0. Orders that no `seed` fixes are rank 0's, where there is a process
        group.

        Args:
            rank: of the process.
            world_size: how many processes there are.

        Returns:
            What gives the rows in a loop, with the ``len()`` and the ``state_dict`` of this loader.

        Raises:
            ArgumentError: `rank` is not below `world_size`, or this loader gives samples, not batches.

        Example:
            >>> import dl4all as dl
            >>> data = dl.data.TensorDataset(list(range(10)))
            >>> loader = dl.data.DataLoader(data, batch_size=8, device="cpu")
            >>> for rank in (0, 1):
            ...     print([rows.tolist() for rows, in loader.shard(rank, 2)])
            [[0, 1, 2, 3], []]
            [[4, 5, 6, 7], [8, 9]]
        """
        if self.batch_size is None and self.batch_sampler is None:
            raise ArgumentError(
                "[DataLoader.shard] expected batches, whose rows are shared, got batch_size=None"
            )
        return LoaderShard(self, rank, world_size)

    def _iterate(self, part: RowShare | None) -> Iterator[Any]:
        """An epoch, or the rest of one, of all rows or of those of one process."""
        if not self._interrupted:
            self._next, self._key = 0, None
        self._interrupted = False
        epoch, first = self._epoch, self._next
        key = self._key = self._key or agreed(self._new_key(epoch), part)
        count = self._length()
        made = self._streamed(key, first, part) if self.iterable else self._made(key, first, part)
        with closing(made):
            for number, batch in enumerate(made, first + 1):
                # The position moves before the yield, so that no batch is given out twice.
                last = number == count
                self._epoch, self._next, self._key = (epoch + 1, 0, None) if last else (epoch, number, key)
                yield batch
        if count is None:
            self._epoch, self._next, self._key = epoch + 1, 0, None

    def _length(self) -> int | None:
        """The number of batches of an epoch; None if only its end will tell."""
        try:
            return None if self.iterable else len(self)
        except TypeError:
            return None

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
        count = self._length()
        if batch and count is not None and batch >= count:
            raise ArgumentError(
                f"[DataLoader] the state is at batch {batch} of an epoch, and this loader has only {count} "
                "batches"
            )
        return epoch, batch, seed, key

    def _facts(self) -> dict[str, Any]:
        """The facts without which a position says nothing."""
        return {
            "samples": None if self.iterable else len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
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
        """The key of the random numbers of an epoch that begins."""
        if self.seed is not None:
            return self.seed, epoch
        return drawn_key(self.generator) if self.shuffle or not self._is_plain() else (0, 0)

    def _is_plain(self) -> bool:
        """Whether nothing but slices of arrays makes the batches, which needs no random numbers."""
        dataset = self.dataset
        while type(dataset) is Subset:
            dataset = dataset.dataset
        return self.collate_fn is None and type(dataset) is TensorDataset

    def _indices(self, key: Key) -> Iterable[Any]:
        """The samples of each batch of an epoch."""
        if not self._own_order:
            chosen: Iterable[Any] = self.sampler if self.batch_sampler is None else self.batch_sampler
            return chosen
        order = self.sampler.order(key)
        size = self.batch_size
        if size is None:
            return list(order.tolist())
        return [order[i * size : (i + 1) * size] for i in range(len(self))]

    def _made(self, key: Key, first: int, part: RowShare | None) -> abc.Generator[Any, None, None]:
        """The batches of an epoch from one on."""
        whole = itertools.islice(self._indices(key), first, None)
        batches = map(functools.partial(indices_of, part), whole)
        make = functools.partial(self._batch, key, 0 if part is None else part.rank)
        if not self.num_workers:
            target = None if self.device is None else device(self.device)
            for number, indices in enumerate(batches, first):
                batch = make(Reading(number), indices)
                yield batch if target is None else _on_device(batch, target, self.device)
        else:
            yield from self._prefetched(make, batches, first, key)

    def _streamed(self, key: Key, first: int, part: RowShare | None) -> abc.Generator[Any, None, None]:
        """The batches of an iterable data set from one on; those before it are made and dropped."""
        streams = Streams(self.dataset, max(1, self.num_workers), self.batch_size, self.drop_last)

        def next_batch(reading: Reading, worker: int) -> Any:
            samples = streams.samples(worker, reading)
            return samples if isinstance(samples, Exhausted) else self._collated(samples, reading)

        def make(reading: Reading, indices: int) -> Any:
            with batch_random(key, reading.number):
                return _guarded(reading, lambda: next_batch(reading, indices))

        given = 0
        if not self.num_workers:
            target = None if self.device is None else device(self.device)
            made: Iterator[Any] = (make(Reading(n), worker) for n, worker in enumerate(streams))
        else:
            target = None
            made = self._prefetched(make, streams, 0, key, pinned=True)
        for batch in made:
            if isinstance(batch, Exhausted):
                streams.finish(batch.worker)
                continue
            given += 1
            if given <= first:
                continue
            if part is not None:
                batch = map_arrays(batch, lambda array: array[part.rows(len(array))])
            yield batch if target is None else _on_device(batch, target, self.device)

    def _prefetched(
        self, make: Callable[..., Any], batches: Iterable[Any], first: int, key: Key, *, pinned: bool = False
    ) -> abc.Generator[Any, None, None]:
        """Batches made by threads."""
        target = None if self.device is None else device(self.device)  # "auto" depends on the thread
        ahead = None if target is None or target.is_host else target
        limit = self.num_workers * self.prefetch_factor
        timeout = min(self.timeout, threading.TIMEOUT_MAX) or None
        begin = functools.partial(self._begin_worker, key)
        made = iter(Prefetch(make, batches, first, self.num_workers, limit, ahead, timeout, begin, pinned))
        with closing(made):
            for batch in made:
                if target is not None and ahead is None:
                    batch = _on_device(batch, target, self.device)
                yield batch

    def _begin_worker(self, key: Key, number: int) -> None:
        """Prepare a worker before its first batch."""
        seed = (key[0] ^ key[1]) + number & MOST_SEED
        become_worker(WorkerInfo(number, self.num_workers, seed, self.dataset))
        if self.worker_init_fn is not None:
            self.worker_init_fn(number)

    def _batch(self, key: Key, rank: int, reading: Reading, indices: Any) -> Any:
        """The batch of some samples, or the sample of one index."""
        if isinstance(indices, Vacant):
            return map_arrays(self._batch(key, rank, reading, indices.sample), lambda array: array[:0])
        fast = self.collate_fn is None and type(self.dataset).__getitem__ is TensorDataset.__getitem__
        if fast and self.batch_size is not None:
            return _guarded(reading, lambda: tuple(array[indices] for array in self.dataset.arrays))
        with batch_random(key, reading.number, rank):
            return _guarded(reading, lambda: self._collated(self._read(indices, reading), reading))

    def _read(self, indices: Any, reading: Reading) -> Any:
        """Samples, or the one of an index where there are no batches."""
        if self.batch_size is None and self.batch_sampler is None:
            reading.sample = indices
            return self.dataset[indices]
        listed = indices.tolist() if isinstance(indices, np.ndarray) else list(indices)
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(listed)
        samples = []
        for index in listed:
            reading.sample = index
            samples.append(self.dataset[index])
        return samples

    def _collated(self, samples: Any, reading: Reading) -> Any:
        reading.sample = None
        if self.batch_size is None and self.batch_sampler is None:
            return default_convert(samples) if self.collate_fn is None else self.collate_fn(samples)
        return (self.collate_fn or collate)(samples)


def _guarded(reading: Reading, make: Callable[[], Any]) -> Any:
    """Call a function, with DataErrors in place of exceptions that would end more than this batch."""
    try:
        return make()
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


def _on_device(batch: Any, target: Device, wanted: str | Device | None) -> Any:
    """The batch on a device, by the name that the user gave; without one, data of the CPU may come along."""
    place = wanted if wanted != "auto" else None if target.name == "cpu" else target

    def move(array: Any) -> Tensor:
        if isinstance(array, Tensor):
            return array if place is None and array.device is target else array.to(place or target)
        return from_numpy(np.ascontiguousarray(array), place)

    return map_arrays(batch, move)


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
