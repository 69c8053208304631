"""How many launches reductions take."""

from __future__ import annotations

import pytest

import dl4all as dl
from dl4all.runtime.null.backend import NullBackend
from tests.ops.test_on_null import KINDS


def launches(kind: str, rows: int, columns: int) -> int:
    """Of a bias's gradient, on a device that computes nothing."""
    device = dl.Device.of_backend("null:0", NullBackend(*KINDS[kind]))
    x = dl.empty(rows, columns, device=device)
    before = device.counters.launches
    dl.ops.sum_to(x, (columns,))
    return device.counters.launches - before


@pytest.mark.parametrize(("kind", "expected"), [("shuffle", 1), ("discrete", 2)])
def test_short_columns_are_one_launch_on_processors(kind: str, expected: int) -> None:
    assert launches(kind, 512, 128) == expected


@pytest.mark.parametrize("kind", ["shuffle", "discrete"])
def test_long_columns_are_cut_into_slices(kind: str) -> None:
    assert launches(kind, 65536, 32) == 2
