"""When the stages of a model work on which micro-batch, by how long each of them takes, in the 1F1B order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dl4all.multi_device.schedule import Kind, only, schedule_of


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a stage for one micro-batch."""

    forward: float
    backward: float = 0.0  # 0 where nothing is trained
    accumulation: float = 0.0  # of gradients; not for the first micro-batch
    update: float = 0.0  # once, at the end
    receive: float = 0.0  # the activation from the stage before
    give_back: float = 0.0  # the gradient to the stage before


class TimeSlot(NamedTuple):
    """A time in which a stage does something; a transfer is on its way to the stage."""

    stage: int
    kind: Literal["forward", "backward", "update", "transfer"]
    micro_batch: int
    start: float
    end: float


def schedule_times(stages: Sequence[StageTimes], micro_batches: int) -> list[TimeSlot]:
    """The slots of a step. A transfer delays the stage that waits for it, and nothing else.

    >>> [slot.end for slot in schedule_times([StageTimes(1.0), StageTimes(2.0, receive=0.5)], 2)]
    [1.0, 2.0, 1.5, 3.5, 2.5, 5.5]
    """
    training = any(stage.backward for stage in stages)
    plan = schedule_of("1f1b", len(stages), micro_batches) if training else None
    left = [steps[::-1] for steps in plan or only("forward", len(stages), micro_batches)]
    done: dict[tuple[int, Kind, int], float] = {}
    free = [0.0] * len(stages)
    slots: list[TimeSlot] = []
    while any(left):
        for k, stage in enumerate(stages):
            while left[k]:
                kind, i = left[k][-1]
                before = k - 1 if kind == "forward" else k + 1
                seconds = stage.forward if kind == "forward" else stage.backward
                ready = 0.0
                if 0 <= before < len(stages):
                    if (before, kind, i) not in done:
                        break
                    ready = done[before, kind, i]
                    delay = stage.receive if kind == "forward" else stages[before].give_back
                    if delay:
                        slots.append(TimeSlot(k, "transfer", i, ready, ready + delay))
                    ready += delay
                if kind == "backward" and i:
                    seconds += stage.accumulation
                left[k].pop()
                start = max(ready, free[k])
                free[k] = done[k, kind, i] = start + seconds
                slots.append(TimeSlot(k, kind, i, start, free[k]))
    for k, stage in enumerate(stages):
        if stage.update:
            slots.append(TimeSlot(k, "update", 0, free[k], free[k] + stage.update))
    return slots


def length(slots: Sequence[TimeSlot]) -> float:
    """When the last slot ends."""
    return max((slot.end for slot in slots), default=0.0)
