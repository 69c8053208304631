"""Samples of data that can only be iterated over, for each worker those of its own iterator."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dl4all.data.prefetch import Reading


@dataclass(frozen=True)
class Exhausted:
    """Stands for a batch of a worker that has no more samples."""

    worker: int


class Streams:
    """The iterators of workers. Iterating gives the worker of each batch: one after the other, in turns.

    Args:
        dataset: each worker iterates over it.
        workers: how many there are.
        batch_size: samples in a batch; None gives single samples.
        drop_last: leave out a last batch that is not full, of each worker.
    """

    def __init__(self, dataset: Iterable[Any], workers: int, batch_size: int | None, drop_last: bool) -> None:
        self._dataset, self._batch_size, self._drop_last = dataset, batch_size, drop_last
        self._iterators: dict[int, Iterator[Any]] = {}
        self._read = [0] * workers  # samples
        self._active = [True] * workers

    def __iter__(self) -> Iterator[int]:
        while any(self._active):
            yield from [worker for worker, active in enumerate(self._active) if active]

    def finish(self, worker: int) -> None:
        """Ask a worker for no more batches."""
        self._active[worker] = False

    def samples(self, worker: int, reading: Reading) -> Any:
        """The next samples of a worker, in its own thread, or Exhausted."""
        if worker not in self._iterators:  # begun here, where get_worker_info() knows the worker
            self._iterators[worker] = iter(self._dataset)
        samples = []
        for sample in itertools.islice(self._iterators[worker], self._batch_size or 1):
            samples.append(sample)
            self._read[worker] += 1
            reading.sample = self._read[worker]
        if not samples or (self._drop_last and len(samples) < (self._batch_size or 1)):
            return Exhausted(worker)
        return samples if self._batch_size is not None else samples[0]
