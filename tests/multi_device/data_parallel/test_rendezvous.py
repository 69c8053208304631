"""Where threads of several devices meet: values, virtual times, and who did not come."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dl4all.errors import DeviceLostError
from dl4all.multi_device.data_parallel.rendezvous import Interrupted, Rendezvous
from dl4all.runtime.simulated import clock
from dl4all.runtime.simulated.backend import Hang

pytestmark = pytest.mark.usefixtures("deadline")

LONG = 30.0


def test_all_get_all_values_in_order() -> None:
    meeting = Rendezvous(3, LONG)

    def party(number: int) -> list[list[int]]:
        return [meeting.exchange(number, key, 10 * key + number) for key in range(50)]

    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(party, range(3)))
    assert results == [[[10 * key, 10 * key + 1, 10 * key + 2] for key in range(50)]] * 3
    assert not meeting._exchanged
    assert not meeting._left


def test_whoever_waits_goes_on_at_the_time_of_the_last() -> None:
    meeting = Rendezvous(3, LONG)

    def party(number: int) -> float:
        clock.set_to(0.5 * number)
        meeting.exchange(number, "key", None)
        return clock.now()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(party, range(3))) == [1.0, 1.0, 1.0]


def test_a_given_value_is_taken_once_with_its_time() -> None:
    meeting = Rendezvous(1, 0.01)

    def give() -> None:
        clock.set_to(2.5)
        meeting.give("key", "value")

    def take() -> tuple[str, float]:
        clock.set_to(1.0)
        return meeting.take("key", 0), clock.now()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(give).result(LONG)
        assert pool.submit(take).result(LONG) == ("value", 2.5)
    with pytest.raises(Interrupted):
        meeting.take("key", 0)


def test_the_first_failure_wakes_all_and_counts() -> None:
    meeting = Rendezvous(3, LONG)
    lost = DeviceLostError("gone")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(meeting.exchange, 0, 1, "a"), pool.submit(meeting.take, "bucket", 2)]
        meeting.fail(2, lost)
        meeting.fail(0, DeviceLostError("later"))
        for future in waiting:
            with pytest.raises(Interrupted):
                future.result(LONG)
    assert meeting.error is lost
    assert meeting.failed == 2
    with pytest.raises(Interrupted):  # whoever comes later
        meeting.exchange(1, 5, "b")


def test_whoever_does_not_come_is_named() -> None:
    meeting = Rendezvous(3, 0.2)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(meeting.exchange, number, 1, number) for number in (0, 2)]
        for future in waiting:
            with pytest.raises(Interrupted):
                future.result(LONG)
    assert isinstance(meeting.error, Hang)
    assert "did not answer within 0.2 seconds" in str(meeting.error)
    assert meeting.failed == 1


def test_whoever_gives_nothing_is_named() -> None:
    meeting = Rendezvous(4, 0.01)
    with pytest.raises(Interrupted):
        meeting.take("bucket", 3)
    assert isinstance(meeting.error, Hang)
    assert meeting.failed == 3


def test_what_has_come_is_taken_after_a_failure_elsewhere() -> None:
    meeting = Rendezvous(2, LONG)
    meeting.give("bucket", 7)
    meeting.fail(1, DeviceLostError("gone"))
    assert meeting.take("bucket", 0) == 7


def test_many_exchanges_of_many_threads_get_no_one_elses_values() -> None:
    meeting = Rendezvous(8, LONG)
    begin = threading.Barrier(8)

    def party(number: int) -> int:
        begin.wait(LONG)
        return sum(
            values == [(key, other) for other in range(8)]
            for key in range(40)
            for values in [meeting.exchange(number, key, (key, number))]
        )

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(party, range(8))) == [40] * 8
