"""Rows of batches for each of several processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data.shard import ALIGNED
from dl4all.errors import ArgumentError


class Numbers(dl.data.IterableDataset):
    """As many numbers as asked for, in order."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(23))


def loaders(**options: Any) -> Iterator[dl.data.DataLoader]:
    """Loaders of arrays, of samples, with workers, and of a stream."""
    arrays = dl.data.TensorDataset(list(range(23)))
    samples = [(float(n), n) for n in range(23)]
    for dataset, workers in itertools.product((arrays, samples), (0, 2)):
        yield dl.data.DataLoader(dataset, 10, num_workers=workers, **options)


def column(batch: Any) -> list[int]:
    last = batch[-1] if isinstance(batch, (tuple, list)) else batch
    return [int(value) for value in last.tolist()]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("device", ["cpu", None])
def test_shards_make_up_the_batches(world_size: int, device: str | None) -> None:
    for loader in (*loaders(device=device), dl.data.DataLoader(Numbers(), 10, device=device)):
        whole = [column(batch) for batch in loader]
        parts = [[column(batch) for batch in loader.shard(rank, world_size)] for rank in range(world_size)]
        for number, batch in enumerate(whole):
            assert list(itertools.chain(*(part[number] for part in parts))) == batch
            starts = itertools.accumulate(len(part[number]) for part in parts)
            assert all(start % ALIGNED == 0 or start == len(batch) for start in starts)


def test_orders_follow_from_the_seed_and_the_epoch() -> None:
    for loader in loaders(shuffle=True, seed=3, device="cpu"):
        first = [column(batch) for batch in loader.shard(0, 1)]
        second = [column(batch) for batch in loader.shard(0, 1)]
        assert sorted(itertools.chain(*first)) == list(range(23))
        assert first != second


def test_a_shard_goes_on_where_its_loader_was() -> None:
    data = dl.data.TensorDataset(list(range(23)))
    loader = dl.data.DataLoader(data, 10, shuffle=True, seed=1, device="cpu")
    whole = [column(batch) for batch in loader.shard(1, 2)]
    begun = dl.data.DataLoader(data, 10, shuffle=True, seed=1, device="cpu").shard(1, 2)
    assert len(begun) == 3
    next(iter(begun))
    other = dl.data.DataLoader(data, 10, shuffle=True, seed=1, device="cpu").shard(1, 2)
    other.load_state_dict(begun.state_dict())
    assert [column(batch) for batch in other] == whole[1:]


def test_processes_transform_with_numbers_of_their_own() -> None:
    class Noise:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> float:
            return float(dl.rand(1, device="cpu").item())

    loader = dl.data.DataLoader(Noise(), 8, device="cpu", seed=1)
    halves = [np.concatenate([batch.numpy() for batch in loader.shard(rank, 2)]) for rank in (0, 1)]
    assert not np.intersect1d(*halves).size


@pytest.mark.parametrize(
    ("rank", "world_size", "batch_size", "message"),
    [
        (2, 2, 4, "rank must be at most 1"),
        (0, 0, 4, "world_size must be at least 1"),
        (0, 2, None, "expected batches, whose rows are shared, got batch_size=None"),
    ],
)
def test_bad_shards(rank: int, world_size: int, batch_size: int | None, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dl.data.DataLoader([1, 2, 3], batch_size).shard(rank, world_size)
