"""Splits of batches: as good as the best there is, within memory, and steady."""

from __future__ import annotations

import itertools
import random

import pytest

import dl4all as dl
from dl4all.multi_device.data_parallel.balance import (
    MEMORY_OF_MEASUREMENTS,
    MOST_BATCHES,
    Balance,
    Estimate,
    finish,
    split,
)
from dl4all.scheduler.device.device import Device


def compositions(rows: int, parties: int) -> list[tuple[int, ...]]:
    return [c for c in itertools.product(range(rows + 1), repeat=parties) if sum(c) == rows]


def test_no_split_is_better() -> None:
    """Of all there are, for several hundred random groups of up to four devices."""
    numbers = random.Random(1)
    for _ in range(400):
        parties, rows = numbers.randint(1, 4), numbers.randint(0, 10)
        fixed = [numbers.choice([0, 1, 3]) * numbers.random() for _ in range(parties)]
        per_row = [numbers.random() + 0.05 for _ in range(parties)]
        shares = split(rows, fixed, per_row)
        assert sum(shares) == rows
        assert min(shares) >= 0
        best = min(finish(c, fixed, per_row) for c in compositions(rows, parties))
        assert finish(shares, fixed, per_row) <= best * (1 + 1e-7), (rows, fixed, per_row, shares)


def test_shares_are_multiples_of_the_grain() -> None:
    """All but that of the last device that gets any, so that each begins at a multiple."""
    numbers = random.Random(2)
    for rows in range(1, 70):
        for grain in (1, 2, 4):
            per_row = [numbers.random() + 0.05 for _ in range(numbers.randint(1, 5))]
            shares = split(rows, [0.0] * len(per_row), per_row, grain)
            assert sum(shares) == rows
            assert min(shares) >= 0
            starts = itertools.accumulate(shares)
            assert all(start % grain == 0 for start in starts if start < rows), (rows, grain, shares)


def test_a_device_that_costs_more_than_it_gives_gets_nothing() -> None:
    assert split(4, [0.0, 100.0], [1.0, 1.0]) == [4, 0]
    assert split(400, [0.0, 100.0], [1.0, 1.0]) == [250, 150]
    assert split(1, [0.0, 0.0], [2.0, 1.0]) == [0, 1]
    assert split(0, [0.0, 0.0], [2.0, 1.0]) == [0, 0]


def group(*estimates: Estimate) -> tuple[Balance, list[Device]]:
    names = ["cpu", *(f"cpu#{n}" for n in range(1, len(estimates)))]
    devices = [dl.device(name) for name in names]
    return Balance(dict(zip(devices, estimates, strict=True))), devices


def test_rows_that_memory_has_no_room_for_go_to_others() -> None:
    balance, devices = group(Estimate(per_row=1.0, most=3), Estimate(per_row=2.0), Estimate(per_row=4.0))
    assert balance.shares(28, devices) == [3, 8 + 13, 4]  # the fastest one with room takes the surplus
    assert [balance.estimates[device].given for device in devices] == [3, 21, 4]


def test_rows_that_fit_nowhere_go_to_the_first_device() -> None:
    balance, devices = group(Estimate(most=2), Estimate(most=3))
    assert balance.shares(9, devices) == [9 - 3, 3]


def test_limits_respect_the_grain() -> None:
    balance, devices = group(Estimate(most=7), Estimate(per_row=1.0))
    balance.grain = 4
    assert balance.shares(20, devices) == [4, 16]


def test_a_small_gain_does_not_change_the_split() -> None:
    balance, devices = group(Estimate(), Estimate())
    assert balance.shares(64, devices) == [32, 32]
    balance.estimates[devices[0]].factor, balance.estimates[devices[1]].factor = 1.0, 1.03
    assert balance.shares(64, devices) == [32, 32]
    balance.estimates[devices[1]].factor = 1.5
    shares = balance.shares(64, devices)
    assert finish(shares, [0.0, 0.0], [1.0, 1.5]) == 39.0  # two splits end then, and none earlier


def test_a_limit_that_comes_later_changes_the_split() -> None:
    balance, devices = group(Estimate(), Estimate())
    assert balance.shares(10, devices) == [5, 5]
    balance.estimates[devices[0]].most = 2
    assert balance.shares(10, devices) == [2, 8]


def test_a_grain_that_comes_later_changes_the_split() -> None:
    balance, devices = group(Estimate(), Estimate())
    assert balance.shares(10, devices) == [5, 5]
    balance.grain = 4
    assert balance.shares(10, devices)[0] % 4 == 0


def test_devices_that_are_left_share_all_rows() -> None:
    balance, devices = group(Estimate(), Estimate(), Estimate())
    assert sum(balance.shares(30, devices)) == 30
    assert balance.shares(30, devices[1:]) == [15, 15]


def test_estimates_follow_what_is_measured() -> None:
    """The first measurement of a share counts for nothing, the next one wholly, and later ones in part."""
    estimate = Estimate(fixed=1.0, per_row=0.5)
    estimate.observe(8, 1000.0)
    assert estimate.factor is None
    estimate.observe(8, 50.0)  # ten times 1 + 8 * 0.5
    assert estimate.factor == 10.0
    estimate.observe(8, 5.0)
    assert estimate.factor == pytest.approx(1 + 9 * MEMORY_OF_MEASUREMENTS)
    for _ in range(30):
        estimate.observe(8, 5.0)
    assert estimate.factor == pytest.approx(1.0, rel=1e-3)


def test_a_device_without_a_measurement_is_as_fast_as_others_were_found() -> None:
    """What was assumed is in a unit of its own: only ratios count until a step was measured."""
    balance, devices = group(Estimate(per_row=1e6), Estimate(per_row=2e6))
    assert balance.shares(30, devices) == [20, 10]
    for _ in range(2):
        balance.estimates[devices[0]].observe(20, 20 * 1e-3)
    assert balance.shares(30, devices) == [20, 10]
    for _ in range(2):
        balance.estimates[devices[1]].observe(10, 40 * 1e-3)  # four times as slow as the first
    assert balance.shares(30, devices) == [24, 6]


def test_so_many_numbers_of_rows_are_remembered_and_no_more() -> None:
    balance, devices = group(Estimate(per_row=1.0), Estimate(per_row=2.0))
    for rows in range(2, 2 * MOST_BATCHES):
        assert sum(balance.shares(rows, devices)) == rows
        balance.estimates[devices[0]].observe(rows, 1.0)
    assert len(balance._last) == len(balance.estimates[devices[0]].seen) == MOST_BATCHES
