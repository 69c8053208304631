"""Losses of two runs of one script, and how far rounding alone drives them apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from lab.scripts.runs import Run

FIRST = 1e-5
"""The largest relative difference of the first loss, before any step was taken."""
ROUNDING = 1e-4
"""Differences of later losses up to this are equal, whatever the network."""
GROWTH = 10.0
"""Larger ones are equal too up to so many times the difference of PyTorch from itself, with weights that
are one unit in the last place off: such a network makes that much of a rounding."""
MOST_NUDGES = 20
"""How often PyTorch is run so at most. One run need not show it: that a number close to 0 gets the other sign
before a ReLU, or a maximum of two close ones its other place, happens to one in ten or twenty."""
SMALLEST = 0.01
"""Smaller losses' differences are relative to this share of the largest loss: some pass through zero."""
LEAST_STEPS = 5
"""Times of fewer steps are not compared."""


class Comparison(NamedTuple):
    """One script's losses with dl4all beside PyTorch's."""

    steps: int
    torch_steps: int
    first: float
    largest: float
    rounding: float | None
    """The largest difference of PyTorch from itself, one unit in the last place away; None: not asked."""
    time_ratio: float | None
    """dl4all's median time of a step over PyTorch's; None for few steps, or another device than the CPU."""

    @property
    def equal(self) -> bool:
        """Whether the losses are equal as far as float32 allows."""
        return (
            self.steps == self.torch_steps > 0
            and self.first <= FIRST
            and self.largest <= max(ROUNDING, GROWTH * (self.rounding or 0.0))
        )

    @property
    def may_be_rounding(self) -> bool:
        """Whether they would be equal if rounding made more of them."""
        return self.steps == self.torch_steps > 0 and self.first <= FIRST


def compare(ours: Run, torch: Run, nudged: Sequence[Run], timed: Run | None, steps: int) -> Comparison:
    """Compare a run with dl4all with PyTorch's.

    Args:
        ours: with dl4all.
        torch: with PyTorch and dl4all's random numbers.
        nudged: the same, one unit in the last place away, however many there are.
        timed: with PyTorch as it is, for its times; None compares none.
        steps: after how many dl4all's was stopped; further ones of PyTorch's do not count.
    """
    found = losses(ours)
    expected = torch.losses[:steps] or torch.items
    apart = differences(found, expected)
    moved = [difference for run in nudged for difference in differences(losses(run), expected)]
    ratio = None
    if timed is not None and min(len(ours.seconds), len(timed.seconds)) > LEAST_STEPS:
        ratio = step_time(ours.seconds) / step_time(timed.seconds)
    return Comparison(
        len(found), len(expected), apart[0] if apart else math.inf, max(apart, default=math.inf),
        max(moved, default=None), ratio,
    )  # fmt: skip


def losses(run: Run) -> list[float]:
    """What the script called ``backward`` on; if it never did, the numbers that it took out of tensors."""
    return run.losses or run.items


def differences(found: list[float], expected: list[float]) -> list[float]:
    """The relative difference at each step that both took."""
    largest = max((abs(value) for value in expected if math.isfinite(value)), default=0.0)
    return [_difference(a, b, SMALLEST * largest) for a, b in zip(found, expected, strict=False)]


def _difference(found: float, expected: float, smallest: float) -> float:
    if found == expected or (math.isnan(found) and math.isnan(expected)):
        return 0.0
    apart = abs(found - expected) / max(abs(expected), smallest)
    return apart if math.isfinite(apart) else math.inf


def step_time(seconds: list[float]) -> float:
    """The median processor time from one step to the next."""
    return max(statistics.median(after - before for before, after in pairwise(seconds)), 1e-9)
