"""Ctrl-C, timers and exceptions of other threads in the middle of a program: the next run is right."""

from __future__ import annotations

import pytest

from tests.attacks.interrupts import Job, Kind, Outcome, attack
from tests.conftest import need
from tests.support.subcases import FULL

DEVICES = ("cpu", "vulkan:0", "kompute:0")
SEVERAL = ("cpu+cpu#1", "vulkan:0+cpu")
CORE = ("allocator", "runtime", "scheduler")
SIGNALS, MANY_SIGNALS = 40, 2000
FEW, OF_OTHERS = 61, 101
"""One of so many points, in the usual run: some sixty of training, and some sixty of the other programs."""
PROGRAMS = (
    ("transfers", "vulkan:0"), ("transfers", "staging"), ("streams", "cpu"), ("contexts", "cpu"),
    ("updating", "vulkan:0"), ("recordings", "kompute:0"), ("recordings", "vulkan:0"),
    ("changes", "vulkan:0"), ("changes", "kompute:0"),
    ("serving", "cpu+cpu#1"), ("pipeline", "cpu+cpu#1"), ("training", "cpu+cpu#1"),
)  # fmt: skip
SLOW_PROGRAMS = (
    ("cold", "vulkan:0"), ("cold", "kompute:0"), ("opening", "vulkan:0"), ("opening", "kompute:0"),
)  # fmt: skip
EVERY, EVERY_SLOW = 1, 7
"""One of so many points, in a full run."""


def _need(device: str) -> None:
    for name in device.split("+"):
        need("vulkan:0" if name == "staging" else name)


def _assert_right(outcome: Outcome) -> None:
    print(outcome)
    assert not outcome.failures, "\n".join([*outcome.failures, str(outcome)])


@pytest.mark.vulkan
@pytest.mark.skipif(FULL, reason="a full run sends more")
# Not under the validation layers: an exception within the making of a device or a command buffer can lose its
# handle, which they count as not destroyed when the process ends.
@pytest.mark.slow
def test_a_few_interrupts() -> None:
    jobs = []
    for device in DEVICES:
        _need(device)
        jobs.append(Job(device, "signals", SIGNALS))
        jobs += [Job(device, kind, FEW, parts=CORE) for kind in ("lines", "checks")]
    for program, device in PROGRAMS:
        _need(device)
        jobs.append(Job(device, "checks", OF_OTHERS, program))
    outcome = attack([*jobs, Job("cpu", "waits", 0.2), Job("vulkan:0", "waits", 0.2)])
    _assert_right(outcome)
    assert outcome.total("interrupted") > SIGNALS
    assert outcome.total("raised") > 80
    assert outcome.total("left") == 10


@pytest.mark.full
@pytest.mark.parametrize("device", [*DEVICES, *SEVERAL])
def test_many_signals(device: str) -> None:
    _need(device)
    outcome = attack([Job(device, "signals", MANY_SIGNALS)])
    _assert_right(outcome)
    assert outcome.total("interrupted") > MANY_SIGNALS / 3


@pytest.mark.full
@pytest.mark.parametrize("kind", ["lines", "checks"])
@pytest.mark.parametrize("device", DEVICES)
def test_every_point_of_training(device: str, kind: Kind) -> None:
    _need(device)
    outcome = attack([Job(device, kind)])
    _assert_right(outcome)
    assert outcome.total("raised") > 100


@pytest.mark.full
@pytest.mark.parametrize("kind", ["lines", "checks"])
@pytest.mark.parametrize(
    ("program", "device", "stride"),
    [(*case, EVERY) for case in (*PROGRAMS, ("training", "vulkan:0+cpu"))]
    + [(*case, EVERY_SLOW) for case in SLOW_PROGRAMS],
)
def test_points_of_other_programs(program: str, device: str, kind: Kind, stride: int) -> None:
    _need(device)
    outcome = attack([Job(device, kind, stride, program)])
    _assert_right(outcome)
    assert outcome.total("raised") > 30


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_long_waits(device: str) -> None:
    _need(device)
    outcome = attack([Job(device, "waits", 3.0)])
    _assert_right(outcome)
    assert outcome.total("left") == 5


def test_what_is_broken_is_found() -> None:
    """A process that dies names the attack, and the rest goes on after it."""
    outcome = attack([Job("no such device", "signals", 1), Job("cpu", "checks", 500)])
    assert len(outcome.failures) == 1
    assert "UnknownDeviceError" in outcome.failures[0]
    assert outcome.total("crashes") == 1
    assert outcome.total("raised") > 0
