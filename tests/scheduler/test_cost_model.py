"""How long launches are said to take, which decides where long work is cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import dl4all as dl
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.runtime.protocols import Dispatch
from dl4all.runtime.records import measurements
from dl4all.scheduler.cost.cost_model import CAUTION, SLOWEST, rates
from dl4all.scheduler.device.device import Device


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> tuple[Device, list[Dispatch]]:
    """A device that computes nothing, and what it is told to run."""
    place = Device.of_backend("null:0", NullBackend())
    commands: list[Dispatch] = []
    monkeypatch.setattr(place._stream, "dispatch", commands.append)
    return place, commands


def tensor(place: Device, *shape: int) -> dl.Tensor:
    made: dl.Tensor = dl.empty(*shape, device=place)
    return made


def test_a_launch_takes_as_long_as_its_bytes(launched: tuple[Device, list[Dispatch]]) -> None:
    place, commands = launched
    tensor(place, 1024, 1024).relu()
    (command,) = commands
    per_byte = rates("null:0", place.info).per_byte
    assert command.seconds == pytest.approx(2 * 4 * 1024 * 1024 * per_byte, rel=0.01)


def test_a_product_takes_as_long_as_its_operations(launched: tuple[Device, list[Dispatch]]) -> None:
    place, commands = launched
    tensor(place, 512, 512) @ tensor(place, 512, 512)
    speed = rates("null:0", place.info)
    expected = 2 * 512**3 * speed.per_flop + 3 * 4 * 512 * 512 * speed.per_byte
    assert sum(command.seconds for command in commands) == pytest.approx(expected, rel=0.05)


def test_measurements_go_before_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"problem": "", "matmul_gflops": 100.0, "copy_gb_per_s": 50.0}
    monkeypatch.setattr(measurements, "lookup", lambda name, info: SimpleNamespace(**found))
    assert rates("null:0", describe()) == (CAUTION / 100e9, CAUTION / 50e9)
    found["problem"] = "wrong results"  # such a device's speed says nothing
    assert rates("null:0", describe()) == (CAUTION / (SLOWEST[0] * 1e9), CAUTION / (SLOWEST[1] * 1e9))
