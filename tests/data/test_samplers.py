"""Samplers, data sets made of others, and a loader with PyTorch's arguments."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset
from dl4all.errors import ArgumentError, DataError

torch = pytest.importorskip("torch", reason="samplers without chance are compared with PyTorch's")


def numbers(count: int = 11) -> TensorDataset:
    return TensorDataset(np.arange(count))


def flat(loader: Any) -> list[int]:
    return list(itertools.chain(*(batch[0].tolist() for batch in loader)))


# Samplers


def test_random_samplers() -> None:
    def draws(make: Any) -> list[list[int]]:
        dl.manual_seed(4)
        sampler = make()
        return [list(sampler), list(sampler)]

    for make in (
        lambda: RandomSampler(range(17)),
        lambda: dl.data.SubsetRandomSampler(range(17)),
        lambda: RandomSampler(range(17), generator=dl.Generator(3)),
    ):
        first, second = draws(make)
        assert sorted(first) == sorted(second) == list(range(17))
        assert first != second
        assert draws(make) == [first, second]
    assert (
        len(list(RandomSampler(range(3), num_samples=8))) == len(RandomSampler(range(3), num_samples=8)) == 8
    )
    assert (
        max(Counter(RandomSampler(range(3), num_samples=8)).values()) == 3
    )  # each comes before any comes again
    assert max(Counter(RandomSampler(range(5), replacement=True, num_samples=500)).values()) < 200
    sampler = RandomSampler(range(7), replacement=True, num_samples=5000, generator=dl.Generator(3))
    assert list(sampler) == sampler.order((3, 0)).tolist()  # drawn piece by piece, and at once
    endless = iter(RandomSampler(range(7), replacement=True, num_samples=10**10))
    assert {next(endless) for _ in range(100)} == set(range(7))


def test_weights_are_met() -> None:
    dl.manual_seed(1)
    weights = dl.tensor([1.0, 0.0, 3.0], device="cpu")
    found = Counter(dl.data.WeightedRandomSampler(weights, 4000))
    assert set(found) == {0, 2}
    assert abs(found[2] / 4000 - 0.75) < 0.03
    assert sorted(dl.data.WeightedRandomSampler([1, 2, 3], 3, replacement=False)) == [0, 1, 2]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "replicas"), [(11, 3), (2, 5), (7, 1), (12, 4)])
def test_distributed_parts_are_pytorchs(count: int, replicas: int, drop_last: bool) -> None:
    for rank in range(replicas):
        options = {"num_replicas": replicas, "rank": rank, "drop_last": drop_last}
        theirs = torch.utils.data.DistributedSampler(range(count), shuffle=False, **options)
        ours = dl.data.DistributedSampler(range(count), shuffle=False, **options)  # type: ignore[arg-type]
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)
    parts = [dl.data.DistributedSampler(range(count), replicas, rank) for rank in range(replicas)]
    first = [list(part) for part in parts]
    assert set(itertools.chain(*first)) == set(range(count))
    for part in parts:
        part.set_epoch(1)
    assert count < 5 or [list(part) for part in parts] != first


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomSampler(range(3), num_samples=0), "num_samples must be at least 1"),
        (lambda: RandomSampler(range(3), replacement=1), "replacement must be a bool"),  # type: ignore[arg-type]
        (lambda: BatchSampler(range(3), 0, False), "batch_size must be at least 1"),
        (lambda: dl.data.WeightedRandomSampler([0, 0], 1), "0 weights are above 0"),
        (lambda: dl.data.WeightedRandomSampler([1, -1], 1), "finite numbers of at least 0"),
        (lambda: dl.data.WeightedRandomSampler([1, 0], 2, False), "1 weights are above 0, too few for 2"),
        (lambda: dl.data.DistributedSampler(range(3), 2, 2), "rank must be at most 1"),
        (lambda: DataLoader(numbers(), 4, True, 2), "pass num_workers=... by name"),  # type: ignore[arg-type]
        (lambda: DataLoader(numbers(), shuffle=True, sampler=[1]), "sampler and shuffle exclude"),
        (lambda: DataLoader(numbers(), 2, batch_sampler=[[1]]), "batch_sampler excludes batch_size"),
        (lambda: DataLoader(Stream(3), shuffle=True), "an IterableDataset gives samples in its own order"),
        (lambda: DataLoader(numbers(), batch_size=None, drop_last=True), "batch_size None"),
        (lambda: dl.data.ConcatDataset([]), "expected at least one data set"),
        (lambda: dl.data.ConcatDataset([Stream(3)]), "use ChainDataset"),  # type: ignore[list-item]
        (lambda: dl.data.StackDataset([1], [1, 2]), r"lengths \[1, 2\]"),
        (lambda: dl.data.StackDataset([1], a=[1]), "either all by name or none"),
        (lambda: dl.data.random_split(numbers(), [5, -6]), "fractions must be positive"),
    ],
)  # fmt: skip
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


# A loader with samplers


@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_give_the_order(workers: int) -> None:
    options: dict[str, Any] = {"num_workers": workers, "device": "cpu"}
    assert flat(DataLoader(numbers(), 4, sampler=[3, 1, 3], **options)) == [3, 1, 3]
    batches = [[5, 6], [], [1, 2, 3]]
    loader = DataLoader(numbers(), batch_sampler=[b for b in batches if b], **options)
    assert [b[0].tolist() for b in loader] == [[5, 6], [1, 2, 3]]
    assert (len(loader), loader.batch_size) == (2, None)
    own = DataLoader(numbers(), 4, shuffle=True, generator=dl.Generator(7), **options)
    assert isinstance(own.sampler, RandomSampler)
    again = DataLoader(numbers(), 4, sampler=RandomSampler(numbers(), generator=dl.Generator(7)), **options)
    assert [flat(own), flat(own)] == [flat(again), flat(again)]
    plain = DataLoader(["a", "b", "c"], batch_size=None, sampler=[2, 0], num_workers=workers)
    assert list(plain) == ["c", "a"]
    assert len(plain) == 2


def test_a_sampler_without_length_and_a_place_to_go_on() -> None:
    loader = DataLoader(numbers(), 2, sampler=iter([1, 2, 3]), device=None)
    with pytest.raises(TypeError):
        len(loader)
    assert flat(loader) == [1, 2, 3]
    whole = DataLoader(numbers(), 2, sampler=range(9), device=None)
    batches = iter(whole)
    next(batches), next(batches)
    resumed = DataLoader(numbers(), 2, sampler=range(9), device=None)
    resumed.load_state_dict(whole.state_dict())
    assert flat(resumed) == [4, 5, 6, 7, 8]


def test_arguments_that_change_nothing_are_taken() -> None:
    loader = DataLoader(
        numbers(), 4, False, None, None, 2, None, True, False, 60, None, "spawn", None,
        prefetch_factor=3, persistent_workers=True, pin_memory_device="", in_order=True,
    )  # fmt: skip
    assert flat(loader) == list(range(11))
    assert loader.prefetch == 3
    assert DataLoader[Any] is not None  # type: ignore[misc]  # in annotations of scripts


def test_workers_know_who_they_are() -> None:
    begun: list[tuple[int, str]] = []
    seen: set[tuple[int, int]] = set()

    class Asks:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            info = dl.data.get_worker_info()
            assert info is not None
            assert info.dataset is loader.dataset
            seen.add((info.id, info.num_workers))
            return index

    def begin(number: int) -> None:
        begun.append((number, threading.current_thread().name))

    loader = DataLoader(Asks(), 1, num_workers=2, worker_init_fn=begin, device=None)
    assert len(list(loader)) == 8
    assert {number for number, _ in begun} >= {number for number, _ in seen}
    assert {count for _, count in seen} == {2}
    assert dl.data.get_worker_info() is None

    def fail(number: int) -> None:
        raise KeyError(f"worker {number}")

    with pytest.raises(KeyError, match="worker"):
        list(DataLoader(numbers(), 1, num_workers=2, worker_init_fn=fail, device=None))


class Draws:
    """Samples made of random numbers."""

    def __len__(self) -> int:
        return 13

    def __getitem__(self, index: int) -> Any:
        return dl.rand(2, device="cpu"), dl.data.transforms.RandomCrop(1)(np.arange(100).reshape(10, 10))


def test_random_samples_are_the_same_with_any_number_of_workers() -> None:
    def epochs(workers: int) -> list[Any]:
        dl.manual_seed(6)
        loader = DataLoader(Draws(), 3, num_workers=workers, device="cpu")
        return [[(x.tolist(), crop.tolist()) for x, crop in loader] for _ in range(2)]

    first = epochs(0)
    assert first == epochs(1) == epochs(3)
    assert first[0] != first[1]
    dl.manual_seed(6)
    loader = DataLoader(Draws(), 3, device="cpu")
    batches = iter(loader)
    next(batches), next(batches)
    resumed = DataLoader(Draws(), 3, device="cpu")
    resumed.load_state_dict(loader.state_dict())
    assert [(x.tolist(), crop.tolist()) for x, crop in resumed] == first[0][2:]


# Data that can only be iterated over


class Stream(IterableDataset):
    def __init__(self, count: int, shared: bool = False, fail: int = -1) -> None:
        self.count, self.shared, self.fail = count, shared, fail

    def __iter__(self) -> Iterator[int]:
        info = dl.data.get_worker_info() if self.shared else None
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(start, self.count, step):
            if i == self.fail:
                raise ValueError(f"sample {i} is broken")
            yield i


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_streams_are_pytorchs(count: int, workers: int, drop_last: bool) -> None:
    """A worker gives what PyTorch's worker gives, in the same turns."""
    ours = DataLoader(Stream(count), 2, num_workers=workers, drop_last=drop_last, device="cpu")
    expected = [batch.tolist() for batch in _theirs(count, max(1, workers), drop_last)]
    assert [batch.tolist() for batch in ours] == expected
    assert [batch.tolist() for batch in ours] == expected  # an epoch can follow
    shared = DataLoader(Stream(count, shared=True), 2, num_workers=workers, device="cpu")
    assert sorted(itertools.chain(*(batch.tolist() for batch in shared))) == list(range(count))


def _theirs(count: int, workers: int, drop_last: bool) -> list[Any]:
    class Theirs(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter(range(count))

    one = list(torch.utils.data.DataLoader(Theirs(), 2, drop_last=drop_last))
    return [batch for batch in one for _ in range(workers)]  # each worker has all samples, in turns


@pytest.mark.parametrize("workers", [0, 2])
def test_what_streams_do_besides(workers: int) -> None:
    options: dict[str, Any] = {"num_workers": workers, "device": "cpu"}
    loader = DataLoader(Stream(9, shared=True), 2, **options)
    whole = [batch.tolist() for batch in loader]
    with pytest.raises(TypeError):
        len(loader)
    loader = DataLoader(Stream(9, shared=True), 2, **options)
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    batches.close()  # type: ignore[attr-defined]
    resumed = DataLoader(Stream(9, shared=True), 2, **options)
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == whole[2:]
    with pytest.raises(ValueError, match="sample 5 is broken"):
        list(DataLoader(Stream(9, shared=True, fail=5), 2, **options))
    plain = DataLoader(Stream(3), batch_size=None, num_workers=0, device="cpu")
    assert list(plain) == [0, 1, 2]

    def stop(samples: list[int]) -> Any:
        raise StopIteration

    with pytest.raises(DataError, match="StopIteration"):
        list(DataLoader(Stream(3), 2, collate_fn=stop, **options))


def test_a_trainer_takes_a_stream(tmp_path: Path) -> None:
    class Points(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter([(np.full(2, i, np.float32), i % 3) for i in range(7)])

    model = dl.nn.Linear(2, 3)
    optimizer = dl.optim.SGD(model.parameters(), 0.01)
    trainer = dl.Trainer(
        model,
        dl.nn.CrossEntropyLoss(),
        optimizer,
        device="cpu",
        folder=tmp_path,
        checkpoint_every=2,
        progress=True,
    )
    history = trainer.fit(DataLoader(Points(), 2, device="cpu"), epochs=2)
    assert len(history["loss"]) == 2
    assert trainer.step == 8


# Data sets made of others, and batches


def test_data_sets_made_of_others() -> None:
    both = dl.data.ConcatDataset([numbers(3), ["a"], numbers(2)])
    assert [both[i] for i in (3, -3)] == ["a", "a"]
    assert int(both[5][0]) == int(both[-1][0]) == 1
    for index in (6, -7):
        with pytest.raises(IndexError):
            both[index]
    assert len(numbers(3) + numbers(4)) == 7
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    pairs = dl.data.StackDataset(["a", "b"], numbers(2))
    assert pairs[1][0] == "b"
    x = dl.randn(5, 3)
    data = TensorDataset(x, dl.arange(5))
    assert isinstance(data[2][0], dl.Tensor)
    assert data[2][0].device == x.device
    assert data.tensors[0] is x


def test_splits_as_in_pytorch() -> None:
    for lengths in ([7, 3, 0], [0.5, 0.25, 0.25], [0.3, 0.3, 0.4]):
        theirs = torch.utils.data.random_split(range(10), lengths)
        ours = dl.data.random_split(range(10), lengths, generator=dl.Generator(3))
        assert [len(part) for part in ours] == [len(part) for part in theirs]
        assert sorted(i for part in ours for i in part.indices) == list(range(10))
        again = dl.data.random_split(range(10), lengths, dl.Generator(3))
        assert [part.indices for part in ours] == [part.indices for part in again]


Pair = namedtuple("Pair", "x name")


def test_default_collate_makes_tensors() -> None:
    samples = [Pair({"a": dl.tensor([1.5, 2.5]), "b": i}, ("x", [i, 2.0])) for i in range(3)]
    batch = dl.data.default_collate(samples)
    assert isinstance(batch, Pair)
    assert batch.x["a"].shape == (3, 2)
    assert batch.x["a"].device.name == "cpu"
    assert (batch.x["b"].dtype, batch.name[1][1].dtype) == (dl.int64, dl.float32)
    assert batch.name[0] == ["x", "x", "x"]
    theirs = torch.utils.data.default_collate([Pair({"b": i}, "x") for i in range(3)])
    assert theirs.x["b"].tolist() == batch.x["b"].tolist()


def test_tensors_of_a_collate_fn_come_to_the_device(device: str) -> None:
    def stack(samples: list[Any]) -> Any:
        return dl.stack([dl.tensor([float(i)], device="cpu") for i in samples]), "text"

    for workers in (0, 2):
        loader = DataLoader(range(5), 2, collate_fn=stack, num_workers=workers, device=device)
        batches = list(loader)
        assert [x.flatten().tolist() for x, _ in batches] == [[0, 1], [2, 3], [4]]
        assert {x.device.name for x, _ in batches} == {device}
