"""The best cuts of a chain of units, and the device of each part: dynamic programming over the cuts.

A part is what one device computes, consecutive units; each device has one part or none. With up to 8 devices
every order of them is considered, exactly: for each set of devices and each of them as the first, the best
way to place the units from each position on. With more, devices are used in one order, the fastest first, and
any may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MOST_ORDERED = 8  # devices of which every order is considered
BOUNDS = 6  # for the slowest part, between the least possible one and none

Numbers = npt.NDArray[np.float64]


class UnitRange(NamedTuple):
    """Units from `start` to before `end`, on a device by its number."""

    start: int
    end: int
    device: int


@dataclass(frozen=True)
class PartitionProblem:
    """A chain of units, and what they cost on each device.

    Args:
        seconds: (devices, units) of a micro-batch, forward and backward.
        once: (devices, units) in a step, whatever the number of micro-batches.
        moves: (devices, devices, units) of what goes to a unit from a device to another one, there and back.
        memory: (units, units + 1) bytes of a part from a unit to before another one, which keeps the
            activations of one micro-batch, of two, and so on.
        limits: bytes that each device has.
        micro_batches: how many there are in a step.
    """

    seconds: Numbers
    once: Numbers
    moves: Numbers
    memory: Sequence[Numbers]
    limits: Sequence[float]
    micro_batches: int = 1

    @property
    def devices(self) -> int:
        return len(self.seconds)

    @property
    def units(self) -> int:
        return int(self.seconds.shape[1])

    def fits(self, device: int, behind: int) -> npt.NDArray[np.bool_]:
        """Which parts a device has the memory for, if so many others are behind it in the pipeline."""
        live = min(self.micro_batches, behind + 1)
        return self.memory[live - 1] <= self.limits[device]


def candidates(problem: PartitionProblem) -> list[list[UnitRange]]:
    """Partitions, one of which is the best; each device alone is among them if it has the memory.

    One micro-batch goes from part to part, and the sum of the times counts: there is one best partition.
    Several are worked on at once, and the slowest part counts most, yet a pipeline of many parts takes long
    to fill: so partitions with the least sum are looked for under several bounds for the slowest part.
    """
    alone = [device for device in range(problem.devices) if problem.fits(device, 0)[0, problem.units]]
    found = [[UnitRange(0, problem.units, device)] for device in alone]
    each = [_sums(seconds) for seconds in problem.seconds]
    whole = [_sums(seconds) for seconds in problem.seconds + problem.once]
    bounds = [np.inf]
    if problem.micro_batches > 1:
        balanced = _search(problem, each, problem.moves, np.maximum)
        if balanced is not None:
            least = max(1e-12, _slowest(problem, balanced))
            most = max(least, *(problem.seconds.sum(axis=1)))
            bounds += list(np.geomspace(least, most, BOUNDS) * (1 + 1e-9))
    for bound in bounds:
        costs = [np.where(part > bound, np.inf, cost) for part, cost in zip(each, whole, strict=True)]
        moves = np.where(problem.moves > bound, np.inf, problem.moves)
        partition = _search(problem, costs, moves, np.add)
        if partition is not None and partition not in found:
            found.append(partition)
    return found


def _slowest(problem: PartitionProblem, partition: Sequence[UnitRange]) -> float:
    """Seconds of the slowest part or move."""
    seconds = [problem.seconds[part.device, part.start : part.end].sum() for part in partition]
    seconds += [problem.moves[one.device, next_.device, next_.start] for one, next_ in pairwise(partition)]
    return float(max(seconds))


def _sums(values: Numbers) -> Numbers:
    """(units, units + 1) sums from a unit to before another one; inf where there is nothing to add up.

    >>> _sums(np.array([1.0, 2.0])).tolist()
    [[inf, 1.0, 3.0], [inf, inf, 2.0]]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.where(np.tri(len(values), len(sums), dtype=bool), np.inf, sums[None, :] - sums[:-1, None])


class _Key(NamedTuple):
    """A device, and those behind it: a bit for each, or none where the order says who they may be."""

    device: int
    behind: int


class _PartitionState(NamedTuple):
    """From each unit on, the best way if a certain device begins there and certain others follow."""

    cost: Numbers
    end: npt.NDArray[Any]  # of the device's part
    following: list[_Key]  # the keys, in the level before, of what may follow
    choice: npt.NDArray[Any]  # which of them does


Level = dict[_Key, _PartitionState]
"""The states of a number of devices, the one that begins included."""


def _search(
    problem: PartitionProblem, costs: Sequence[Numbers], moves: Numbers, combine: Callable[..., Any]
) -> list[UnitRange] | None:
    """The partition of the least sum, or the least maximum, of costs and moves; None if there is none.

    Args:
        costs: of each device, for each part.
        moves: see :class:`PartitionProblem`.
        combine: ``np.add`` or ``np.maximum``.
    """
    levels: list[Level] = []
    best: tuple[float, int, _Key] | None = None
    for behind in range(problem.devices):
        level: Level = {}
        for key, following in _extensions(problem, levels):
            allowed = np.where(problem.fits(key.device, behind), costs[key.device], np.inf)
            before = levels[-1] if levels else {}
            state = level[key] = _state(key.device, allowed, following, before, moves, combine)
            cost = float(state.cost[0])
            if np.isfinite(cost) and (best is None or cost < best[0] * (1 - 1e-12)):
                best = cost, behind, key
        levels.append(level)
    return None if best is None else _walk(levels, best[1], best[2], problem.units)


def _extensions(problem: PartitionProblem, levels: Sequence[Level]) -> Iterator[tuple[_Key, list[_Key]]]:
    """Which device may begin before which states of the last level."""
    devices = range(problem.devices)
    if not levels:
        yield from ((_Key(device, 0), []) for device in devices)
    elif problem.devices <= MOST_ORDERED:
        sets: dict[int, list[_Key]] = {}
        for key in levels[-1]:
            sets.setdefault(key.behind | 1 << key.device, []).append(key)
        for used, following in sets.items():
            yield from ((_Key(device, used), following) for device in devices if not used >> device & 1)
    else:
        slowest_first = np.argsort(-problem.seconds.sum(axis=1), kind="stable").tolist()
        for rank, device in enumerate(slowest_first):
            following = [_Key(other, 0) for other in slowest_first[:rank] if _Key(other, 0) in levels[-1]]
            if following:
                yield _Key(device, 0), following


def _state(
    device: int,
    allowed: Numbers,
    following: list[_Key],
    before: Level,
    moves: Numbers,
    combine: Callable[..., Any],
) -> _PartitionState:
    """Let a device compute a part, and the best of what may follow the rest; if nothing may, all of it."""
    units = len(allowed)
    if not following:
        return _PartitionState(allowed[:, units], np.full(units, units), following, np.zeros(units, int))
    rests = np.stack([combine(moves[device, key.device], before[key].cost) for key in following])
    choice = rests.argmin(axis=0)
    total = combine(allowed[:, :units], rests.min(axis=0)[None, :])
    end = total.argmin(axis=1)
    return _PartitionState(total[np.arange(units), end], end, following, choice[end])


def _walk(levels: Sequence[Level], behind: int, key: _Key, units: int) -> list[UnitRange]:
    """The parts of the best way, from the first unit on."""
    parts = []
    start = 0
    while True:
        state = levels[behind][key]
        end = int(state.end[start])
        parts.append(UnitRange(start, end, key.device))
        if end == units:
            return parts
        behind, key, start = behind - 1, state.following[int(state.choice[start])], end
