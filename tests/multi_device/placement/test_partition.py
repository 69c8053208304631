"""Partitions of chains over devices, against trying all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from dl4all.multi_device.placement.partition import MOST_ORDERED, PartitionProblem, UnitRange, candidates


def problem(
    seed: int, units: int, devices: int, *, limit: float = np.inf, micro_batches: int = 1, move: float = 1.0
) -> PartitionProblem:
    rng = np.random.default_rng(seed)
    moves = rng.uniform(0, move, (devices, devices, units))
    moves[np.arange(devices), np.arange(devices)] = 0
    sizes = np.concatenate([[0], np.cumsum(rng.uniform(0.5, 1.5, units))])
    memory = sizes[None, :] - sizes[:-1, None]
    return PartitionProblem(
        rng.uniform(0.1, 2.0, (devices, units)),
        rng.uniform(0, 0.2, (devices, units)),
        moves,
        [memory * live for live in range(1, micro_batches + 1)],
        [limit] * devices,
        micro_batches,
    )


def every_partition(units: int, devices: int) -> Iterator[list[UnitRange]]:
    for count in range(1, min(units, devices) + 1):
        for cuts in itertools.combinations(range(1, units), count - 1):
            bounds = [0, *cuts, units]
            for order in itertools.permutations(range(devices), count):
                yield [UnitRange(bounds[i], bounds[i + 1], device) for i, device in enumerate(order)]


def fits(p: PartitionProblem, partition: list[UnitRange]) -> bool:
    last = len(partition) - 1
    return all(bool(p.fits(part.device, last - i)[part.start, part.end]) for i, part in enumerate(partition))


def times(p: PartitionProblem, partition: list[UnitRange]) -> tuple[float, float]:
    """The sum of all that a micro-batch and a step take, and the slowest part or move of a micro-batch."""
    parts = [p.seconds[part.device, part.start : part.end].sum() for part in partition]
    once = sum(p.once[part.device, part.start : part.end].sum() for part in partition)
    moves = [p.moves[a.device, b.device, b.start] for a, b in itertools.pairwise(partition)]
    return float(sum(parts) + once + sum(moves)), float(max(*parts, *moves, 0.0))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [np.inf, 3.5])
def test_the_least_sum_is_found(seed: int, limit: float) -> None:
    p = problem(seed, 6, 3, limit=limit)
    found = candidates(p)
    assert all(fits(p, partition) for partition in found)
    best = min(times(p, partition)[0] for partition in every_partition(6, 3) if fits(p, partition))
    assert min(times(p, partition)[0] for partition in found) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_balance_is_among_several_micro_batches(seed: int) -> None:
    p = problem(seed, 6, 3, limit=9.0, micro_batches=4, move=0.3)
    possible = [partition for partition in every_partition(6, 3) if fits(p, partition)]
    slowest = min(times(p, partition)[1] for partition in possible)
    best = min(
        (partition for partition in possible if times(p, partition)[1] <= slowest * (1 + 1e-9)),
        key=lambda partition: times(p, partition)[0],
    )
    found = candidates(p)
    assert all(fits(p, partition) for partition in found)
    assert best in found
    assert [UnitRange(0, 6, 0)] in found or not p.fits(0, 0)[0, 6]


def test_stages_in_front_keep_more_micro_batches() -> None:
    """Of four units, two need the memory of two, or of four with another stage behind them."""
    p = problem(0, 4, 2, micro_batches=2, move=0.0)
    memory = np.array([[max(0.0, end - start) for end in range(5)] for start in range(4)], np.float64)
    p = PartitionProblem(
        np.ones((2, 4)), np.zeros((2, 4)), p.moves * 0, [memory, memory * 2.0], [3.0, 3.0], 2
    )
    lengths = {tuple(part.end - part.start for part in partition) for partition in candidates(p)}
    assert lengths == {(1, 3)}


def test_nothing_fits() -> None:
    assert candidates(problem(0, 5, 3, limit=0.4)) == []


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_many_devices_are_used_in_one_order(micro_batches: int) -> None:
    devices = MOST_ORDERED + 3
    p = problem(1, 14, devices, limit=1.6 * micro_batches, micro_batches=micro_batches, move=0.1)
    found = candidates(p)
    assert found
    assert all(fits(p, partition) for partition in found)
    rank = np.argsort(np.argsort(p.seconds.sum(axis=1)))
    for partition in found:
        ranks = [int(rank[part.device]) for part in partition]
        assert ranks == sorted(set(ranks))
        assert [part.start for part in partition] == [0, *(part.end for part in partition[:-1])]
        assert partition[-1].end == 14


def test_one_order_is_searched_exactly() -> None:
    p = problem(2, 5, MOST_ORDERED + 1, limit=2.5)
    rank = np.argsort(np.argsort(p.seconds.sum(axis=1)))
    ordered = (
        partition
        for partition in every_partition(5, MOST_ORDERED + 1)
        if fits(p, partition)
        and all(rank[a.device] < rank[b.device] for a, b in itertools.pairwise(partition))
    )
    best = min(times(p, partition)[0] for partition in ordered)
    assert min(times(p, partition)[0] for partition in candidates(p)) == pytest.approx(best)
