"""Schedules of pipelines: that they can be run, how long they take, and how much they keep."""

from __future__ import annotations

from itertools import product

import pytest

from dl4all.errors import ArgumentError
from dl4all.multi_device.schedule import Schedule, StageStep, bubble, most_alive, only, schedule_of

NAMES = ("1f1b", "gpipe")
SIZES = [(p, m) for p, m in product((1, 2, 3, 4, 8), (1, 2, 3, 5, 8, 16))]


def needs(stage: int, step: StageStep, stages: int) -> list[tuple[int, StageStep]]:
    """What must be done before a step."""
    if step.kind == "forward":
        return [(stage - 1, step)] if stage else []
    own = (stage, StageStep("forward", step.micro_batch))
    return [own, (stage + 1, step)] if stage + 1 < stages else [own]


def finish_times(schedule: Schedule, forward: float, backward: float) -> dict[tuple[int, StageStep], float]:
    """When each step ends, if every stage begins its next step as soon as it can."""
    stages = len(schedule)
    ends: dict[tuple[int, StageStep], float] = {}
    free, position = [0.0] * stages, [0] * stages
    while any(position[s] < len(schedule[s]) for s in range(stages)):
        ready = [
            s
            for s in range(stages)
            if position[s] < len(schedule[s])
            and all(key in ends for key in needs(s, schedule[s][position[s]], stages))
        ]
        assert ready, "every stage waits for another one"
        for s in ready:
            step = schedule[s][position[s]]
            begin = max([free[s], *(ends[key] for key in needs(s, step, stages))])
            free[s] = ends[s, step] = begin + (forward if step.kind == "forward" else backward)
            position[s] += 1
    return ends


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_every_micro_batch_goes_through_once(name: str, stages: int, micro_batches: int) -> None:
    every = sorted(StageStep(kind, i) for kind in ("forward", "backward") for i in range(micro_batches))
    schedule = schedule_of(name, stages, micro_batches)
    assert [sorted(steps) for steps in schedule] == [every] * stages


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_the_time_is_that_of_the_bubble_formula(name: str, stages: int, micro_batches: int) -> None:
    total = max(finish_times(schedule_of(name, stages, micro_batches), 1.0, 2.0).values())
    assert total == 3.0 * (micro_batches + stages - 1)
    assert 1 - 3.0 * micro_batches / total == pytest.approx(bubble(stages, micro_batches))


@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_what_is_kept(stages: int, micro_batches: int) -> None:
    kept = [most_alive(steps) for steps in schedule_of("1f1b", stages, micro_batches)]
    assert kept == [min(stages - stage, micro_batches) for stage in range(stages)]
    assert {most_alive(steps) for steps in schedule_of("gpipe", stages, micro_batches)} == {micro_batches}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_no_step_needs_one_of_a_later_round(name: str, stages: int, micro_batches: int) -> None:
    """So steps that are submitted round by round never wait for one that is not."""
    schedule = schedule_of(name, stages, micro_batches)
    rounds = {(s, step): i for s, steps in enumerate(schedule) for i, step in enumerate(steps)}
    for (stage, step), number in rounds.items():
        assert all(rounds[key] <= number for key in needs(stage, step, stages))


def test_one_way_only() -> None:
    assert only("backward", 2, 2) == [[StageStep("backward", 0), StageStep("backward", 1)]] * 2


@pytest.mark.parametrize(("name", "stages", "micro_batches"), [("zb", 2, 2), ("1f1b", 0, 2), ("gpipe", 2, 0)])
def test_what_cannot_be(name: str, stages: int, micro_batches: int) -> None:
    with pytest.raises(ArgumentError, match=r"\[pipeline\]"):
        schedule_of(name, stages, micro_batches)
