"""DataLoader: batches of a data set, prepared by threads while the network computes."""

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
from dl4all.ops.core.limits import integer
from dl4all.ops.random.generator import default_generator
from dl4all.scheduler.current import device
from dl4all.scheduler.device import Device
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Collate = Callable[[list[Any]], Any]
Key = tuple[int, int]
"""What an order follows from: a seed and an epoch, or the seed and the counter of a generator."""


class DataLoader:
    """Batches of a data set, as tensors on a device.

    One iteration goes once through the data: an epoch. With `shuffle` each epoch has its own order. It is
    drawn from the default generator when the iteration begins, so that :func:`dl4all.manual_seed` makes it
    repeatable; with a `seed` of the loader's own it depends on that and the epoch's number only. Either way
    it is the same on every machine. After :meth:`load_state_dict` the next iteration continues an interrupted
    epoch with its next batch; any other one begins with a first batch.

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
        seed: int | None = None,
        device: str | Device | None = "auto",
    ) -> None:
        numbers = {"batch_size": batch_size, "num_workers": num_workers, "prefetch": prefetch}
        for what, number in (numbers | {"seed": seed or 0}).items():
            integer("DataLoader", what, number, most=2**64)
        if batch_size < 1 or num_workers < 0 or prefetch < 1 or not 0 <= (seed or 0) < 2**64:
            raise ArgumentError(
                f"[DataLoader] batch_size {batch_size} and prefetch {prefetch} must be at least 1, "
                f"num_workers {num_workers} and seed {seed} at least 0, the seed below 2^64"
            )
        if len(dataset) == 0:
            raise ArgumentError("[DataLoader] the data set is empty")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.num_workers, self.prefetch, self.seed = num_workers, prefetch, seed
        self.device = device
        self._collate = collate_fn
        self._epoch = 0  # the epoch of the next iteration
        self._next = 0  # its first batch that was not given out
        self._key: Key | None = None  # its order, if it has begun
        self._interrupted = False  # the next iteration continues this epoch

    def __len__(self) -> int:
        """How many batches an epoch has."""
        count = len(self.dataset) / self.batch_size
        return math.floor(count) if self.drop_last else math.ceil(count)

    def __iter__(self) -> Iterator[Any]:
        if not self._interrupted:
            self._next, self._key = 0, None
        self._interrupted = False
        epoch, first = self._epoch, self._next
        key = self._key = self._key or self._new_key(epoch)
        indices = self._indices(key)[first:]
        batches = self._prefetched(indices) if self.num_workers else map(self._batch, indices)
        if self.device is not None:
            target = device(self.device)  # in this thread, because "auto" depends on the thread
            prefetch = self.num_workers and not target.is_host
            batches = _uploaded_ahead(batches, target) if prefetch else _on_device(batches, target)
        for number, batch in enumerate(batches, first + 1):
            # The position moves before the yield, so that no batch is given out twice.
            last = number == len(self)
            self._epoch, self._next, self._key = (epoch + 1, 0, None) if last else (epoch, number, key)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The position, from which another loader of the same data can continue.

        Without a seed of the loader's own, the orders of later epochs follow from the default generator; its
        state is kept apart (:func:`dl4all.get_rng_state`).
        """
        order = None if self._key is None else list(self._key)
        return {"epoch": self._epoch, "batch": self._next, "seed": self.seed, "order": order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position of another loader."""
        self._epoch, self._next, self.seed = state["epoch"], state["batch"], state["seed"]
        order = state.get("order")
        self._key = None if order is None else (order[0], order[1])
        self._interrupted = True

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration at the first batch of an epoch.

        Args:
            epoch: the number of the epoch, from 0. Only with a seed does the order follow from it.
        """
        self._epoch, self._next, self._key, self._interrupted = epoch, 0, None, False

    def _new_key(self, epoch: int) -> Key:
        """What the order of an epoch that begins follows from."""
        if self.seed is not None:
            return self.seed, epoch
        return default_generator().draw(1) if self.shuffle else (0, 0)

    def _indices(self, key: Key) -> list[npt.NDArray[np.int64]]:
        """The samples of each batch of an epoch."""
        count = len(self.dataset)
        if self.shuffle:
            philox = np.random.Philox(key=np.array(key, np.uint64))  # a list may become floats
            order = np.random.Generator(philox).permutation(count)
        else:
            order = np.arange(count)
        return [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(len(self))]

    def _batch(self, indices: npt.NDArray[np.int64]) -> Any:
        """The batch of some samples."""
        if self._collate is None and isinstance(self.dataset, TensorDataset):
            return self.dataset[indices]  # all samples in one selection
        samples = [self.dataset[int(i)] for i in indices]
        return (self._collate or collate)(samples)

    def _prefetched(self, batches: list[npt.NDArray[np.int64]]) -> Iterator[Any]:
        """Batches in order, prepared by threads; an error in a thread is raised here, with its traceback."""
        with ThreadPoolExecutor(self.num_workers, "dl4all-data") as workers:
            waiting: deque[Future[Any]] = deque()
            try:
                for indices in batches:
                    waiting.append(workers.submit(self._batch, indices))
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
        ArgumentError: the shapes of the samples differ.
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


def _on_device(batches: Iterator[Any], device: Device) -> Iterator[Any]:
    """Batches on a device, each uploaded when it is asked for."""
    return (
        _map_arrays(batch, lambda array: from_numpy(np.ascontiguousarray(array), device)) for batch in batches
    )


def _uploaded_ahead(batches: Iterator[Any], device: Device) -> Iterator[Any]:
    """Batches on a device; a thread uploads the next one while the device computes with the present one."""
    upload = _Upload(device)

    def upload_next() -> Any:
        return next((_map_arrays(batch, upload) for batch in batches), _END)

    thread = ThreadPoolExecutor(1, "dl4all-upload")
    try:
        future = thread.submit(upload_next)
        while (batch := future.result()) is not _END:
            future = thread.submit(upload_next)
            yield batch
    finally:
        # Without waiting: the garbage collector may close this generator while the device's lock is held,
        # which the thread needs.
        thread.shutdown(wait=False, cancel_futures=True)


_END = object()  # what upload_next returns after the last batch


class _Upload:
    """Uploads arrays through pinned memory, from which the device can copy while it computes."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pinned: npt.NDArray[np.uint8] | None = None  # as large as the largest array so far

    def __call__(self, array: npt.NDArray[Any]) -> Tensor:
        if self._pinned is None or self._pinned.size < array.nbytes:
            tensor = from_numpy(np.ascontiguousarray(array), self._device)
            if tensor.storage.buffer.mapped is None:  # the host cannot write to the device's memory
                self._pinned = self._device.pin(np.empty(array.nbytes, np.uint8))
            return tensor
        pinned = self._pinned[: array.nbytes].view(array.dtype).reshape(array.shape)
        pinned[...] = array
        return from_numpy(pinned, self._device)  # waits for the copy, so the memory may be overwritten


def _map_arrays(batch: Any, function: Callable[[npt.NDArray[Any]], Tensor]) -> Any:
    """A batch with a function applied to its arrays."""
    if isinstance(batch, Mapping):
        return {key: _map_arrays(value, function) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(_map_arrays(value, function) for value in batch)
    return function(batch) if isinstance(batch, np.ndarray) else batch
