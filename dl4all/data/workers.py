"""The thread that reads a sample: what it knows of itself, and its random numbers."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from dl4all.data.sampler import Key, drawn_key, random_numbers
from dl4all.ops.random.generator import Generator, drawing_from


@dataclass(frozen=True)
class WorkerInfo:
    """The answer of :func:`get_worker_info` about a worker.

    Args:
        id: the worker's number, from 0.
        num_workers: how many there are.
        seed: follows from the epoch's random numbers, and differs between workers.
        dataset: the data set; threads share it.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.DataLoader([5, 7], num_workers=2, device="cpu", collate_fn=lambda samples: (
        ...     samples[0], dl.data.get_worker_info().num_workers))
        >>> list(data)
        [(5, 2), (7, 2)]
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _WorkerState(threading.local):
    info: WorkerInfo | None = None


_state = _WorkerState()


def get_worker_info() -> WorkerInfo | None:
    """The worker of a loader that this thread is; None in any other one.

    An :class:`IterableDataset` asks it which part of the data to give.

    Example:
        >>> import dl4all as dl
        >>> class Numbers(dl.data.IterableDataset):
        ...     def __iter__(self):
        ...         info = dl.data.get_worker_info()
        ...         return iter(range(6)) if info is None else iter(range(info.id, 6, info.num_workers))
        >>> [x.tolist() for x in dl.data.DataLoader(Numbers(), 3, num_workers=2, device="cpu")]
        [[0, 2, 4], [1, 3, 5]]
    """
    return _state.info


def become_worker(info: WorkerInfo) -> None:
    """Let this thread be a worker until it ends."""
    _state.info = info


def batch_random(key: Key, number: int, rank: int = 0) -> contextlib.AbstractContextManager[None]:
    """Within, this thread draws the random numbers of a batch: the same ones whichever thread makes it.

    Processes that share a batch have numbers of their own; the first has those of one that is alone.
    """
    own = [rank] if rank else []
    words = np.random.SeedSequence([*key, number, *own]).generate_state(1, np.uint64)
    return drawing_from(Generator(int(words[0])))


def numpy_generator() -> np.random.Generator:
    """NumPy's generator for the next random decision, drawn from this thread's default generator."""
    return random_numbers(drawn_key(None))
