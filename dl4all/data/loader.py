"""Batches of a data set, made ready while the network computes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.data.dataset import Dataset, TensorDataset
from dl4all.errors import ArgumentError
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Collate = Callable[[list[Any]], Any]


class DataLoader:
    """Batches of a data set, as tensors on a device.

    Iterating goes once through the data, an epoch. With `shuffle` each epoch has an order of its own, which
    depends on `seed` and the epoch's number only: the same on every machine, and after
    :meth:`load_state_dict` the one that was interrupted goes on with the batch that would have been next.

    Args:
        dataset: what has ``len()`` and ``[i]``.
        batch_size: samples in a batch; the last one may have fewer.
        shuffle: take the samples in random order.
        num_workers: threads that read samples and put batches together, ahead of their use; one more puts
            the next batch on the device while this one is worked with. With 0 it is done when the batch is
            asked for.
        drop_last: leave out a last batch that is not full.
        collate_fn: makes a batch of a list of samples; by default :func:`collate`.
        prefetch: batches that are made ahead for each worker.
        seed: of the order.
        device: where batches go; None leaves them NumPy arrays.

    Raises:
        ArgumentError: the data set is empty, or a number is out of range.

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
        seed: int = 0,
        device: str | Device | None = "auto",
    ) -> None:
        if batch_size < 1 or num_workers < 0 or prefetch < 1 or seed < 0:
            raise ArgumentError(
                f"[DataLoader] batch_size {batch_size} and prefetch {prefetch} must be at least 1, "
                f"num_workers {num_workers} and seed {seed} at least 0"
            )
        if len(dataset) == 0:
            raise ArgumentError("[DataLoader] the data set is empty")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.num_workers, self.prefetch, self.seed = num_workers, prefetch, seed
        self.device = device
        self._collate = collate_fn
        self._epoch = 0  # that the next iteration begins or goes on with
        self._next = 0  # the batch it begins with

    def __len__(self) -> int:
        """Batches in an epoch."""
        count = len(self.dataset) / self.batch_size
        return math.floor(count) if self.drop_last else math.ceil(count)

    def __iter__(self) -> Iterator[Any]:
        epoch, first = self._epoch, self._next
        batches = self._batches(epoch)[first:]
        made = self._ahead(batches) if self.num_workers else map(self._make, batches)
        if self.device is not None:
            place = device(self.device)  # here: what "auto" means depends on the thread
            made = _uploaded(made, place) if self.num_workers and not place.is_host else _placed(made, place)
        for number, batch in enumerate(made, first + 1):
            # Noted before the batch is handed over: what has been given is not given again.
            self._epoch, self._next = (epoch, number) if number < len(self) else (epoch + 1, 0)
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where it is: with this another loader of the same data and seed goes on."""
        return {"epoch": self._epoch, "batch": self._next, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where another loader was."""
        self._epoch, self._next, self.seed = state["epoch"], state["batch"], state["seed"]

    def set_epoch(self, epoch: int) -> None:
        """Begin with this epoch's order."""
        self._epoch, self._next = epoch, 0

    def _batches(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        count = len(self.dataset)
        if self.shuffle:
            order = np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(count)
        else:
            order = np.arange(count)
        return [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(len(self))]

    def _make(self, indices: npt.NDArray[np.int64]) -> Any:
        if self._collate is None and isinstance(self.dataset, TensorDataset):
            return self.dataset[indices]  # one selection instead of a sample at a time
        samples = [self.dataset[int(i)] for i in indices]
        return (self._collate or collate)(samples)

    def _ahead(self, batches: list[npt.NDArray[np.int64]]) -> Iterator[Any]:
        """Batches in order, made by threads; what one of them raises is raised here, with its traceback."""
        with ThreadPoolExecutor(self.num_workers, "dl4all-data") as workers:
            waiting: deque[Future[Any]] = deque()
            todo = iter(batches)
            try:
                for indices in todo:
                    waiting.append(workers.submit(self._make, indices))
                    if len(waiting) >= self.num_workers * self.prefetch:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def collate(samples: list[Any]) -> Any:
    """A batch of samples: arrays and numbers are stacked along a new first axis, within tuples and dicts too.

    Raises:
        ArgumentError: shapes differ.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(collate(list(part)) for part in zip(*samples, strict=True))
    arrays = [
        sample.detach().numpy() if isinstance(sample, Tensor) else np.asarray(sample) for sample in samples
    ]
    if len({array.shape for array in arrays}) > 1:
        raise ArgumentError(
            f"[collate] samples of different shapes, {arrays[0].shape} and others; pass a collate_fn"
        )
    stacked = np.stack(arrays)
    return stacked.astype(np.float32) if isinstance(first, float) else stacked


def _placed(batches: Iterator[Any], place: Device) -> Iterator[Any]:
    return (_mapped(batch, lambda array: from_numpy(np.ascontiguousarray(array), place)) for batch in batches)


def _uploaded(batches: Iterator[Any], place: Device) -> Iterator[Any]:
    """Batches on a device; a thread puts the next one there while the device computes with this one."""
    upload = _Upload(place)

    def following() -> Any:
        return next((_mapped(batch, upload) for batch in batches), _END)

    thread = ThreadPoolExecutor(1, "dl4all-upload")
    try:
        coming = thread.submit(following)
        while (batch := coming.result()) is not _END:
            coming = thread.submit(following)
            yield batch
    finally:
        # Not waited for: the garbage collector may end this where the device is held, which the thread needs.
        thread.shutdown(wait=False, cancel_futures=True)


_END = object()


class _Upload:
    """Puts arrays on a device, through memory of its own that the device copies from while it computes."""

    def __init__(self, place: Device) -> None:
        self._place = place
        self._pinned: npt.NDArray[np.uint8] | None = None  # as large as the largest array so far

    def __call__(self, array: npt.NDArray[Any]) -> Tensor:
        if self._pinned is None or self._pinned.size < array.nbytes:
            made = from_numpy(np.ascontiguousarray(array), self._place)
            if made.storage.buffer.mapped is None:  # the host does not see the device's memory
                self._pinned = self._place.pin(np.empty(array.nbytes, np.uint8))
            return made
        pinned = self._pinned[: array.nbytes].view(array.dtype).reshape(array.shape)
        pinned[...] = array
        return from_numpy(pinned, self._place)  # the copy is waited for: the memory may be filled again


def _mapped(batch: Any, function: Callable[[npt.NDArray[Any]], Tensor]) -> Any:
    """A batch with its arrays replaced."""
    if isinstance(batch, Mapping):
        return {key: _mapped(value, function) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_mapped(value, function) for value in batch)
    return function(batch) if isinstance(batch, np.ndarray) else batch
