"""Ctrl-C, timers and exceptions of other threads in the middle of training steps: the next one is right."""

from __future__ import annotations

import pytest

from tests.attacks.interrupts import Job, Outcome, attack
from tests.conftest import need
from tests.support.subcases import FULL

DEVICES = ("cpu", "vulkan:0", "kompute:0")
SEVERAL = ("cpu+cpu#1", "vulkan:0+cpu")
SIGNALS, MANY_SIGNALS = 60, 2000
STRIDES = {"lines": 41, "checks": 47}
"""One of so many points, in the usual run: some sixty of all devices."""


def _found(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The devices that are there; the test is skipped without any."""
    for name in {part for device in devices for part in device.split("+")}:
        need(name)
    return devices


def _assert_right(outcome: Outcome) -> None:
    print(outcome)
    assert not outcome.failures, "\n".join([*outcome.failures, str(outcome)])


@pytest.mark.vulkan
@pytest.mark.skipif(FULL, reason="a full run sends more")
def test_a_few_interrupts() -> None:
    jobs = []
    for device in _found(DEVICES):
        jobs.append(Job(device, "signals", SIGNALS))
        jobs += [Job(device, "lines", STRIDES["lines"]), Job(device, "checks", STRIDES["checks"])]
    outcome = attack([*jobs, Job("cpu", "waits", 0.3), Job("vulkan:0", "waits", 0.3)])
    _assert_right(outcome)
    assert outcome.total("interrupted") > SIGNALS
    assert outcome.total("raised") > 30
    assert outcome.total("left") > 6


@pytest.mark.full
@pytest.mark.parametrize("device", [*DEVICES, *SEVERAL])
def test_many_signals(device: str) -> None:
    outcome = attack([Job(*_found((device,)), "signals", MANY_SIGNALS)])
    _assert_right(outcome)
    assert outcome.total("interrupted") > MANY_SIGNALS / 3


@pytest.mark.full
@pytest.mark.parametrize("kind", ["lines", "checks"])
@pytest.mark.parametrize("device", [*DEVICES, *SEVERAL])
def test_every_point(device: str, kind: str) -> None:
    outcome = attack([Job(*_found((device,)), "lines" if kind == "lines" else "checks")])
    _assert_right(outcome)
    assert outcome.total("raised") > 100


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_long_waits(device: str) -> None:
    outcome = attack([Job(*_found((device,)), "waits", 3.0)])
    _assert_right(outcome)
    assert outcome.total("left") == 5


def test_what_is_broken_is_found() -> None:
    """A process that dies names the attack, and the rest goes on after it."""
    outcome = attack([Job("no such device", "signals", 1), Job("cpu", "waits", 0.1)])
    assert len(outcome.failures) == 1
    assert "UnknownDeviceError" in outcome.failures[0]
    assert outcome.total("crashes") == 1
    assert outcome.total("left") > 0
