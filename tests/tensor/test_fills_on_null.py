"""Fills happen on the device: nothing as large as the tensor is made on the host, or sent."""

from __future__ import annotations

import pytest

import dl4all as dl
from dl4all.runtime.null.backend import NullBackend


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory, which would be counted."""


def test_fills_happen_on_the_device() -> None:
    backend = NullBackend()
    place = dl.Device.of_backend("null:0", backend)
    large = 2**25
    made = [dl.zeros(large, device=place), dl.ones(large, device=place), dl.full((large,), 2.5, device=place)]
    made += [dl.zeros(large, dtype="bool", device=place), dl.zeros(2**24, dtype="int64", device=place)]
    assert backend.counts["upload"] == 0
    assert backend.counts["fill"] == len(made)
