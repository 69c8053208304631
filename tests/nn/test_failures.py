"""A network whose device fails at any one call: nothing leaks, and the next forward works."""

from __future__ import annotations

from typing import Any

import pytest

import dl4all as dl
from dl4all import nn
from dl4all.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dl4all.runtime.null.faults import Call, FaultyBackend

CALLS: tuple[Call, ...] = ("allocate", "program", "dispatch", "upload", "download")


def error_of(call: Call) -> DeviceError:
    """What a device says when the call fails."""
    kind = OutOfMemoryError if call == "allocate" else DeviceLostError
    return kind("[null] told to")


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the one that fills memory: uploads are counted here, and a buffer for each allocation."""
    monkeypatch.setenv("DL4ALL_ALLOCATOR", "pool")


class Network(nn.Module):
    """One of each kind of layer, and a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        """Class probabilities."""
        x = self.conv(x)
        x = self.pool((self.norm(x) + x).relu())
        return dl.nn.functional.softmax(self.linear(self.mean(x).flatten(1)), dim=1)


def place_network() -> tuple[FaultyBackend, dl.Device, Network]:
    backend = FaultyBackend()
    place = dl.Device.of_backend("null:0", backend)
    return backend, place, Network().eval().to(place)


def forward(network: Network, place: dl.Device) -> str:
    """A picture in, numbers out, nothing kept; an error's message, for the error keeps its frames alive."""
    try:
        network(dl.ones(2, 3, 8, 8, device="cpu").to(place)).numpy()
    except DeviceError as error:
        return str(error)
    return ""


def calls_of_a_forward(call: Call) -> int:
    """How often a first forward makes a call."""
    backend, place, network = place_network()
    before = backend.counts[call]
    assert not forward(network, place)
    return backend.counts[call] - before


@pytest.mark.parametrize("call", CALLS)
def test_every_single_call_may_fail(call: Call) -> None:
    """In the first forward, when programs are made and no memory waits in the pool."""
    count = calls_of_a_forward(call)
    assert count > 0
    for after in range(count):
        backend, place, network = place_network()
        in_use = place.pool.stats.allocated
        # Twice, because the pool tries again after it has given back what waits.
        backend.fail(call, after=after, times=2, error=error_of(call))
        assert "[null] told to" in forward(network, place), f"call {after} of {count}"
        backend.recover()
        assert place.pool.stats.allocated == in_use, f"call {after} of {count} keeps memory"
        assert not forward(network, place)
        assert place.pool.stats.allocated == in_use
        backend.close()
        assert backend.counts["allocate bytes"] == backend.counts["free bytes"]
        assert backend.counts["program"] == backend.counts["free program"]


def test_a_full_device_is_emptied_and_used() -> None:
    """Memory that waits in the pool is given back when an allocation fails once."""
    backend, place, network = place_network()
    assert not forward(network, place)
    waiting = place.pool.stats.reserved - sum(allocation.size for allocation in place.pool.live())
    backend.fail("allocate", error=error_of("allocate"))
    larger = dl.ones(2, 3, 64, 64, device="cpu").to(place)
    assert backend.counts["free bytes"] == waiting > 0
    assert network(larger).shape == (2, 5)
