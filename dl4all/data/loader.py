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
from dl4all.scheduler.device import Device, device
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
        num_workers: threads that read samples and put batches together, ahead of their use. With 0 it is done
            when the batch is asked for.
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
        for number, batch in enumerate(made, first + 1):
            # Noted before the batch is handed over: what has been given is not given again.
            self._epoch, self._next = (epoch, number) if number < len(self) else (epoch + 1, 0)
            yield self._placed(batch)

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

    def _placed(self, batch: Any) -> Any:
        return batch if self.device is None else _to_device(batch, device(self.device))


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


def _to_device(batch: Any, place: Device) -> Any:
    if isinstance(batch, Mapping):
        return {key: _to_device(value, place) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_to_device(value, place) for value in batch)
    return from_numpy(np.ascontiguousarray(batch), place) if isinstance(batch, np.ndarray) else batch
