"""The order in which each stage of a pipeline takes the micro-batches of a batch.

A schedule is data: for each stage a list of steps. What runs it is
:mod:`dl4all.multi_device.pipeline.micro_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from dl4all.errors import ArgumentError

Kind = Literal["forward", "backward"]


class StageStep(NamedTuple):
    """An action of a stage on one micro-batch."""

    kind: Kind
    micro_batch: int


Schedule = list[list[StageStep]]
"""The steps of each stage, in their order."""


def schedule_of(name: str, stages: int, micro_batches: int) -> Schedule:
    """The schedule of that name.

    Args:
        name: ``"gpipe"`` has all micro-batches forward before the first goes backward (Huang et al.,
            arXiv:1811.06965), and a stage keeps the activations of all of them. ``"1f1b"`` has each go
            backward as soon as it can (Narayanan et al., arXiv:2006.09503), and stage `i` keeps those of
            ``stages - i``. Both take as long.
        stages: how many stages there are.
        micro_batches: into how many parts a batch is divided.

    Raises:
        ArgumentError: there is no such schedule, or a number is below 1.

    Example:
        >>> for steps in schedule_of("1f1b", stages=2, micro_batches=3):
        ...     print(" ".join(f"{step.kind[0].upper()}{step.micro_batch}" for step in steps))
        F0 F1 B0 F2 B1 B2
        F0 B0 F1 B1 F2 B2
    """
    if name not in SCHEDULES:
        known = " and ".join(repr(known) for known in SCHEDULES)
        raise ArgumentError(f"[pipeline] expected a schedule, {known}, got {name!r}")
    if stages < 1 or micro_batches < 1:
        raise ArgumentError(
            f"[pipeline] {stages} stages and {micro_batches} micro-batches must be at least 1 each"
        )
    ahead = SCHEDULES[name]
    return [_steps(min(ahead(stages - stage, micro_batches), micro_batches), micro_batches)
            for stage in range(stages)]  # fmt: skip


SCHEDULES: dict[str, Callable[[int, int], int]] = {
    "gpipe": lambda stages, micro_batches: micro_batches,
    "1f1b": lambda stages, micro_batches: stages,
}
"""The micro-batches that a stage takes forward before the first goes backward, by the stages from it on."""


def _steps(ahead: int, micro_batches: int) -> list[StageStep]:
    """First `ahead` forward, then one backward and one forward in turn, then the rest backward."""
    steps = [StageStep("forward", number) for number in range(ahead)]
    for number in range(micro_batches):
        steps.append(StageStep("backward", number))
        if ahead + number < micro_batches:
            steps.append(StageStep("forward", ahead + number))
    return steps


def only(kind: Kind, stages: int, micro_batches: int) -> Schedule:
    """All micro-batches one way, in their order.

    >>> only("forward", 1, 2)
    [[StageStep(kind='forward', micro_batch=0), StageStep(kind='forward', micro_batch=1)]]
    """
    return [[StageStep(kind, number) for number in range(micro_batches)] for _ in range(stages)]


def most_alive(steps: Sequence[StageStep]) -> int:
    """Of how many micro-batches at a time a stage keeps the activations.

    >>> [most_alive(steps) for steps in schedule_of("1f1b", stages=3, micro_batches=8)]
    [3, 2, 1]
    """
    alive = most = 0
    for step in steps:
        alive += 1 if step.kind == "forward" else -1
        most = max(most, alive)
    return most


def bubble(stages: int, micro_batches: int) -> float:
    """The part of the time in which a stage has nothing to do, where all stages take equally long.

    >>> bubble(stages=4, micro_batches=12)
    0.2
    """
    return (stages - 1) / (micro_batches + stages - 1)
