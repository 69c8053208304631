"""The number of rows of a batch that each device of a group computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from dl4all.runtime.bounded_dict import BoundedDict
from dl4all.scheduler.device.device import Device

GAIN = 0.05  # a new split must be that much faster: other shapes cost new kernels and memory
NOISE = 0.01  # relative changes of measurements that make no new split
MOST_BATCHES = 256  # numbers of rows whose split, or first step, is remembered
FACTS = attrgetter("fixed", "link", "per_row", "most")  # of an estimate, other than what is measured
MEMORY_OF_MEASUREMENTS = 0.7  # the weight of what was known in a new estimate


def split(
    rows: int,
    fixed: Sequence[float],
    per_row: Sequence[float],
    grain: int = 1,
    least: Sequence[float] | None = None,
) -> list[int]:
    """Split a batch so that the slowest device is done as early as possible.

    Args:
        rows: of the batch.
        fixed: seconds that each device needs whatever it gets, unless it gets nothing.
        per_row: seconds that each device needs for a row.
        grain: shares are multiples of it, except for the last one.
        least: seconds that a step takes at least if a device has a part in it beside others, for its link.

    Returns:
        The rows of each device.

    >>> split(64, [0.0, 0.0, 0.0], [1.0, 2.0, 4.0])
    [37, 18, 9]
    >>> split(4, [0.0, 100.0], [1.0, 1.0])
    [4, 0]
    >>> split(4, [0.0, 0.0], [1.0, 1.0], least=[0.0, 100.0])
    [4, 0]
    """
    links = [0.0] * len(per_row) if least is None else least
    units = -(-rows // grain)
    order = sorted(range(len(per_row)), key=lambda i: fixed[i] + per_row[i] * rows)
    best: tuple[float, list[int]] | None = None
    for count in range(1, len(order) + 1):
        shares = _share(units, order[:count], fixed, [seconds * grain for seconds in per_row])
        seconds = finish(shares, fixed, [seconds * grain for seconds in per_row])
        used = [i for i, share in enumerate(shares) if share]
        if len(used) > 1:
            seconds = max(seconds, *(links[i] for i in used))
        if best is None or seconds < best[0] * (1 - 1e-9):
            best = seconds, shares
    assert best is not None
    shares = [share * grain for share in best[1]]
    last = max(i for i, share in enumerate(shares) if share) if any(shares) else 0
    shares[last] -= sum(shares) - rows
    return shares


def _share(units: int, chosen: Sequence[int], fixed: Sequence[float], per_unit: Sequence[float]) -> list[int]:
    """Shares of the chosen devices that end at nearly one time."""
    rate = sum(1 / per_unit[i] for i in chosen)
    end = (units + sum(fixed[i] / per_unit[i] for i in chosen)) / rate
    shares = [0] * len(fixed)
    for i in chosen:
        shares[i] = max(0, int((end - fixed[i]) / per_unit[i] + 1e-9))
    left = units - sum(shares)
    while left:
        step = 1 if left > 0 else -1
        able = [i for i in chosen if step > 0 or shares[i]]
        # The device that ends first afterwards gets one more, the one that ends last gives one back.
        i = min(able, key=lambda i: step * (fixed[i] + per_unit[i] * (shares[i] + (step > 0))))
        shares[i] += step
        left -= step
    return shares


def finish(shares: Sequence[int], fixed: Sequence[float], per_row: Sequence[float]) -> float:
    """When the last device is done.

    >>> finish([37, 18, 9], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0])
    37.0
    """
    times = zip(shares, fixed, per_row, strict=True)
    return max((f + p * share for share, f, p in times if share), default=0.0)


@dataclass
class Estimate:
    """Knowledge of a device's speed with a model."""

    fixed: float = 0.0  # seconds of a step, whatever the rows
    link: float = 0.0  # seconds in which parameters come and gradients go
    per_row: float = 1.0
    factor: float | None = None  # by which steps took longer than that, when one was measured
    most: int | None = None  # rows that its memory has room for
    given: int = 0  # rows of the last batch
    # Shares that were measured before.
    seen: BoundedDict[int, None] = field(default_factory=lambda: BoundedDict(MOST_BATCHES))

    def observe(self, rows: int, seconds: float) -> None:
        """Learn from a step. The first with a share does not count: kernels are compiled then."""
        if rows not in self.seen:
            self.seen[rows] = None
            return
        measured = seconds / (self.fixed + self.per_row * rows)
        # Before a measurement only the ratios of devices are known: it must not be mixed with that.
        known = measured if self.factor is None else self.factor
        self.factor = known + (1 - MEMORY_OF_MEASUREMENTS) * (measured - known)


class Balance:
    """The shares of a group's devices, by estimates that follow what is measured.

    Args:
        estimates: for each device.
    """

    def __init__(self, estimates: dict[Device, Estimate]) -> None:
        self.estimates = estimates
        self.grain = 1
        self._last = BoundedDict[tuple[int, tuple[Device, ...]], list[int]](MOST_BATCHES)
        self._kept: tuple[Any, list[int]] = None, []  # the last shares, and what they followed from

    def shares(self, rows: int, devices: Sequence[Device]) -> list[int]:
        """The rows of each device; those of the last batch as long as others would gain little."""
        known = [self.estimates[device] for device in devices]
        factors = [e.factor and round(math.log(e.factor) / NOISE) for e in known]
        basis = rows, self.grain, list(devices), factors, list(map(FACTS, known))
        before, shares = self._kept
        if basis != before:
            shares = self._shares(rows, devices, known)
            self._kept = basis, shares
        for estimate, share in zip(known, shares, strict=True):
            estimate.given = share
        return shares

    def _shares(self, rows: int, devices: Sequence[Device], known: list[Estimate]) -> list[int]:
        measured = [estimate.factor for estimate in known if estimate.factor is not None]
        usual = math.exp(sum(map(math.log, measured)) / len(measured)) if measured else 1.0
        factors = [usual if estimate.factor is None else estimate.factor for estimate in known]
        fixed = [estimate.fixed * factor for estimate, factor in zip(known, factors, strict=True)]
        per_row = [estimate.per_row * factor for estimate, factor in zip(known, factors, strict=True)]
        links = [estimate.link for estimate in known]
        best = self._within_memory(split(rows, fixed, per_row, self.grain, links), known, per_row)
        key = rows, tuple(devices)
        last = self._last.get(key)
        if last is not None and all(share % self.grain == 0 for share in last[:-1]):
            fits = all(e.most is None or share <= e.most for share, e in zip(last, known, strict=True))
            if fits and finish(best, fixed, per_row) > (1 - GAIN) * finish(last, fixed, per_row):
                return last
        self._last[key] = best
        return best

    def _within_memory(self, shares: list[int], known: list[Estimate], per_row: Sequence[float]) -> list[int]:
        """Move rows from devices without room to those with room, the fastest first."""
        surplus = 0
        for i, estimate in enumerate(known):
            if estimate.most is not None and shares[i] > estimate.most:
                kept = estimate.most // self.grain * self.grain
                surplus += shares[i] - kept
                shares[i] = kept
        for i in sorted(range(len(known)), key=per_row.__getitem__):
            most = known[i].most
            room = surplus if most is None else max(0, most // self.grain * self.grain - shares[i])
            taken = min(surplus, room)
            shares[i] += taken
            surplus -= taken
        if surplus:  # it fits nowhere; whoever computes it will say so
            shares[0] += surplus
        return shares
