"""Which requests go together, when, and where."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.multi_device.serving.request import Request, host_array, rows
from dl4all.multi_device.serving.request_buckets import Buckets, choose
from dl4all.runtime.simulated import clock


class Nobody:
    """An owner that takes no part."""

    def hasten(self, request: Request) -> None:
        raise AssertionError("nobody waits")

    def forget(self, request: Request) -> None:
        """Nothing to forget."""


def requests(*times: float, shape: tuple[int, ...] = (2,)) -> list[Request]:
    """One submitted at each of these virtual times."""
    made = []
    for seconds in times:
        clock.set_to(seconds)
        made.append(Request((np.ones((1, *shape), np.float32),), Nobody(), on_virtual_clock=True))
    clock.set_to(0.0)
    return made


def take(buckets: Buckets, now: float, most: int = 100) -> list[float] | None:
    """When the requests of the next batch were submitted."""
    key = buckets.due(now)
    return None if key is None else [r.submitted for r in buckets.pop(key, most).requests]


@pytest.mark.parametrize(
    ("free_times", "costs", "chosen"),
    [
        ([0.0], [1.0], 0),
        ([2.0, 1.0], [0.1, 9.0], 1),  # the first to be free
        ([1.0, 1.0, 1.0], [3.0, 1.0, 2.0], 1),  # of several, the fastest
        ([1.0, 1.0], [1.0, 1.0], 0),  # of those, the first
        ([math.inf, 5.0], [0.0, 1.0], 1),
    ],
)
def test_choose(free_times: list[float], costs: list[float], chosen: int) -> None:
    assert choose(free_times, costs) == chosen


def test_greedy_choice_shares_by_speed() -> None:
    free, costs, batches = [0.0, 0.0, 0.0], [1.0, 2.0, 4.0], [0, 0, 0]
    for _ in range(700):
        which = choose(free, costs)
        free[which] += costs[which]
        batches[which] += 1
    assert batches == [400, 200, 100]
    assert max(free) == 400.0


def test_a_full_batch_goes_at_once_and_a_partial_one_after_its_time() -> None:
    buckets = Buckets(3, 1.0)
    for request in requests(0.0, 0.25, 0.5, 0.75):
        assert buckets.add(request) in (1.0, 1.75)
    assert len(buckets) == 4
    assert take(buckets, 0.75) == [0.0, 0.25, 0.5]
    assert take(buckets, 1.5) is None
    assert buckets.next_due(1.5) == 1.75
    assert take(buckets, 1.75) == [0.75]
    assert len(buckets) == 0
    assert buckets.next_due(2.0) == math.inf


def test_only_equal_shapes_and_dtypes_go_together() -> None:
    buckets = Buckets(2, 1.0)
    a, b = requests(0.0, 0.3)
    (c,) = requests(0.1, shape=(3,))
    d = Request((np.ones((1, 2), np.int64),), Nobody(), on_virtual_clock=True)
    for request in (a, c, d, b):
        buckets.add(request)
    key = buckets.due(0.3)
    assert key == a.key
    assert buckets.pop(key, 9).requests == [a, b]
    assert set(buckets) == {c, d}
    assert take(buckets, 2.0) == [0.0]  # the one that came first
    assert take(buckets, 2.0) == [0.1]


def test_a_device_takes_as_many_as_it_can() -> None:
    buckets = Buckets(4, 1.0)
    for request in requests(0.0, 0.1, 0.2, 0.3, 0.4):
        buckets.add(request)
    assert take(buckets, 0.4, most=3) == [0.0, 0.1, 0.2]
    assert take(buckets, 0.4, most=3) == [0.3]  # which was in the same batch, so it need not wait
    assert take(buckets, 0.4) is None


def test_what_is_due_takes_along_what_has_come_meanwhile() -> None:
    buckets = Buckets(4, 1.0)
    for request in requests(0.0, 5.0):
        buckets.add(request)
    assert take(buckets, 5.0) == [0.0, 5.0]


def test_exact_batches_follow_from_the_times_of_the_requests() -> None:
    buckets = Buckets(4, 1.0, exact=True)
    for request in requests(0.0, 1.0, 1.5, 2.0, 3.0):
        buckets.add(request)
    key = buckets.due(0.0)
    assert key is not None
    first = buckets.pop(key, 4)
    assert [r.submitted for r in first.requests] == [0.0, 1.0]
    assert first.ready == 1.0
    assert buckets.due(99.0) == key  # 3.0 closed the second one
    second = buckets.pop(key, 4)
    assert ([r.submitted for r in second.requests], second.ready) == ([1.5, 2.0], 2.5)
    assert buckets.due(99.0) is None  # time passes by requests only
    buckets.hurry()
    third = buckets.pop(key, 4)
    assert ([r.submitted for r in third.requests], third.ready) == ([3.0], 4.0)


def test_hurrying_a_request_hurries_those_before_it() -> None:
    buckets = Buckets(2, 1.0, exact=True)
    made = requests(*[0.0] * 5)
    for request in made:
        buckets.add(request)
    assert buckets.remove(made[1])
    assert buckets.due(0.0) is None  # the first one has room, though nobody will take it
    buckets.hurry(made[2])
    assert take(buckets, 0.0) == [0.0]
    assert take(buckets, 0.0) == [0.0, 0.0]
    assert take(buckets, 0.0) is None
    buckets.hurry(made[2])  # no longer there
    assert take(buckets, 0.0) is None
    assert list(buckets) == [made[4]]


def test_a_deadline_hides_no_batch_that_is_due_sooner() -> None:
    buckets = Buckets(4, 1.0)
    first, second = requests(0.0, 0.5)
    first.deadline = 60.0
    buckets.add(first)
    assert buckets.next_due(0.0) == 1.0
    second.deadline = 0.75
    buckets.add(second)
    assert buckets.next_due(0.5) == 0.75
    assert buckets.expired(0.5) == []
    assert buckets.expired(0.8) == [second]
    assert buckets.remove(second)
    assert buckets.expired(90.0) == [first]
    assert buckets.pop(first.key, 4).requests == [first]
    assert buckets.expired(90.0) == []


def test_a_request_is_removed_once() -> None:
    buckets = Buckets(4, 1.0)
    a, b = requests(0.0, 0.5)
    for request in (a, b):
        buckets.add(request)
    assert [buckets.remove(a), buckets.remove(a)] == [True, False]
    assert len(buckets) == 1
    assert buckets.next_due(0.0) == 1.5
    assert buckets.remove(b)
    assert not list(buckets)
    assert buckets.due(9.0) is None


# Inputs and outputs of one request


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.0, 2.0], "float32"),
        (np.arange(2.0), "float64"),
        (3, "int64"),
        (dl.ones(2, device="cpu"), "float32"),
    ],
)
def test_inputs_are_copied_to_the_host(value: Any, dtype: str) -> None:
    made = host_array(value)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, np.asarray(value))
    if isinstance(value, np.ndarray):
        value += 1
        assert made.tolist() == [0.0, 1.0]


def test_outputs_come_apart_and_have_memory_of_their_own() -> None:
    x = dl.tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    first, second = rows((x, [x.sum(1), {"twice": x * 2}]), requests(0.0, 0.0))
    assert first[0].tolist() == [1.0, 2.0]
    assert (second[1][0].item(), second[1][1]["twice"].tolist()) == (7.0, [6.0, 8.0])
    assert second[1][0].shape == ()
    first[0].add_(10.0)
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert second[0].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    "output", [dl.ones(3, 2, device="cpu"), dl.ones(2, device="cpu").sum(), "text", None, {}, [()]]
)
def test_outputs_without_a_batch_are_refused(output: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"\[InferenceQueue\] expected outputs whose first axis is the batch"
    ):
        rows(output, requests(0.0, 0.0))


def test_what_was_cut_short_is_in_nobodys_way() -> None:
    """An exception came after a bucket was made and before it had a request, or behind its last one."""
    buckets = Buckets(2, 1.0)
    (first,) = requests(0.0)
    buckets._buckets[first.key] = deque()
    assert buckets.due(5.0) is None
    buckets.add(first)
    buckets._buckets[first.key][0].requests = []
    assert buckets.next_due(0.0) == math.inf
    buckets.add(first)
    assert buckets.pop(first.key, 2).requests == [first]
    assert not len(buckets)
