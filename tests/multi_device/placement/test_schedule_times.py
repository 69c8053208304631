"""When stages work on which micro-batch."""

from __future__ import annotations

import pytest

from dl4all.multi_device.placement.schedule_times import StageTimes, TimeSlot, length, schedule_times


@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("micro_batches", [1, 3, 8])
def test_equal_stages_take_as_long_as_the_bubbles_say(stages: int, micro_batches: int) -> None:
    slots = schedule_times([StageTimes(1.0, 2.0)] * stages, micro_batches)
    assert length(slots) == pytest.approx((micro_batches + stages - 1) * 3.0)
    forward = schedule_times([StageTimes(1.0)] * stages, micro_batches)
    assert length(forward) == pytest.approx(micro_batches + stages - 1)


def test_one_micro_batch_goes_there_and_back() -> None:
    stages = [
        StageTimes(1.0, 2.0, accumulation=100.0, update=0.5),
        StageTimes(3.0, 4.0, update=9.0, receive=0.25, give_back=0.125),
    ]
    slots = schedule_times(stages, 1)
    assert slots == [
        TimeSlot(0, "forward", 0, 0.0, 1.0),
        TimeSlot(1, "transfer", 0, 1.0, 1.25),
        TimeSlot(1, "forward", 0, 1.25, 4.25),
        TimeSlot(1, "backward", 0, 4.25, 8.25),
        TimeSlot(0, "transfer", 0, 8.25, 8.375),
        TimeSlot(0, "backward", 0, 8.375, 10.375),
        TimeSlot(0, "update", 0, 10.375, 10.875),
        TimeSlot(1, "update", 0, 8.25, 17.25),
    ]
    assert length(slots) == 17.25


def test_gradients_are_added_up_from_the_second_micro_batch_on() -> None:
    slots = schedule_times([StageTimes(1.0, 2.0, accumulation=0.5)], 3)
    assert length(slots) == 3 * 3.0 + 2 * 0.5


def test_the_slowest_stage_counts_most() -> None:
    times = [StageTimes(1.0, 1.0), StageTimes(2.0, 3.0), StageTimes(0.5, 0.5)]
    assert length(schedule_times(times, 40)) == pytest.approx(40 * 5.0, rel=0.05)
    assert length(schedule_times(times, 40)) > 40 * 5.0
