"""Data sets made of others: one after the other, or side by side."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from dl4all.data.dataset import Dataset, IterableDataset, Samples
from dl4all.errors import ArgumentError


class ConcatDataset(Dataset):
    """Data sets one after the other.

    Args:
        datasets: data sets with ``len()`` and ``[i]``.

    Raises:
        ArgumentError: there is none, or one can only be iterated over.

    Example:
        >>> import dl4all as dl
        >>> data = dl.data.ConcatDataset([["a", "b"], ["c"]])
        >>> len(data), data[2], data[-3], data.cumulative_sizes
        (3, 'c', 'a', [2, 3])
    """

    def __init__(self, datasets: Iterable[Samples]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("[ConcatDataset] expected at least one data set, got none")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ArgumentError("[ConcatDataset] an IterableDataset has no [i]; use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        number = bisect.bisect_right(self.cumulative_sizes, place)
        return self.datasets[number][place - (self.cumulative_sizes[number - 1] if number else 0)]


class ChainDataset(IterableDataset):
    """Data sets that can only be iterated over, one after the other.

    Args:
        datasets: iterables of samples.

    Example:
        >>> import dl4all as dl
        >>> list(dl.data.ChainDataset([range(2), range(3)]))
        [0, 1, 0, 1, 2]
    """

    def __init__(self, datasets: Iterable[Iterable[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self) -> int:
        sized: Any = self.datasets
        return sum(map(len, sized))  # a TypeError where one has no length


class StackDataset(Dataset):
    """Data sets of equal length side by side: a sample is a tuple of theirs, or a dict.

    Args:
        args: data sets, for tuples.
        kwargs: data sets by name, for dicts.

    Raises:
        ArgumentError: there is none, there are some by name and some not, or their lengths differ.

    Example:
        >>> import dl4all as dl
        >>> dl.data.StackDataset(image=[1.0, 2.0], text=["a", "b"])[1]
        {'image': 2.0, 'text': 'b'}
    """

    def __init__(self, *args: Samples, **kwargs: Samples) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError(
                f"[StackDataset] expected data sets, either all by name or none, got {len(args)} without a "
                f"name and {len(kwargs)} by name"
            )
        self.datasets: tuple[Samples, ...] | dict[str, Samples] = args or kwargs
        lengths = [len(dataset) for dataset in args or kwargs.values()]
        if len(set(lengths)) != 1:
            raise ArgumentError(f"[StackDataset] expected data sets of one length, got lengths {lengths}")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])
