"""Devices fail at every point of a step, and the training goes on as if they had not."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import threading
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import DeviceError, DeviceLostError
from dl4all.multi_device.data_parallel import sharded_step
from dl4all.runtime.simulated.description import Failure, FailureKind
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.streams.group import DeviceGroup
from tests.support.parallel_training import (
    TIMEOUT,
    Counting,
    Outcome,
    allocated,
    convolutions,
    distance,
    images,
    left,
    simulation,
    tiny,
    train,
    vectors,
)
from tests.support.parallel_training import ended_threads as ended_threads
from tests.support.subcases import each, some

pytestmark = pytest.mark.usefixtures("deadline", "split_by_speed")

TOLERANCE = 1e-6
PHASES = ("upload", "forward", "backward", "reduce", "download", "")
KINDS: tuple[FailureKind, ...] = ("lost", "hang", "memory", "slow")
FATAL = ("lost", "hang")


@pytest.fixture
def poisoned() -> None:
    """Instead of the one that fills memory, which would be a command more of simulated devices."""


@functools.cache
def alone() -> Outcome:
    return train(["cpu"], steps=6)


def retired(group: DeviceGroup) -> list[int]:
    return [number for number, device in enumerate(group.devices) if device in group.retired]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@each("phase, after, number", some(list(itertools.product(PHASES, (0, 3), (1, 2))), 5))
def test_a_failure_of_another_device(kind: Any, phase: str, after: int, number: int) -> None:
    failure = Failure(kind, phase, after)
    failures: list[tuple[Failure, ...]] = [(), (), ()]
    failures[number] = (failure,)
    devices = [
        simulated_device(gflops=gflops, failures=own)
        for gflops, own in zip((400, 200, 100), failures, strict=True)
    ]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    assert distance(alone(), train(group, steps=6)) < TOLERANCE
    assert failure not in left(devices[number])  # it has happened
    if kind == "memory":  # it computes fewer rows; without memory for a single one it is retired
        assert retired(group) in ([], [number])
    else:
        assert retired(group) == ([number] if kind in FATAL else [])
    gc.collect()
    assert not any(allocated(group))  # of a network that nobody holds any more


@pytest.mark.parametrize("kind", FATAL)
def test_a_device_that_failed_before_it_was_used(kind: Any) -> None:
    devices = [simulated_device(), simulated_device()]
    simulation(devices[1]).fail(Failure(kind))
    with pytest.raises(DeviceError):
        dl.ones(3, device="cpu").to(devices[1]) + 1
    group = DeviceGroup(devices, timeout=TIMEOUT)
    assert distance(alone(), train(group, steps=6)) < TOLERANCE
    assert retired(group) == [1]


def test_a_device_without_memory_for_the_parameters() -> None:
    devices = [simulated_device(), simulated_device(memory=2000)]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    assert distance(alone(), train(group, steps=6)) < TOLERANCE
    assert retired(group) == [1]


@pytest.mark.parametrize("kind", FATAL)
@each("phase", PHASES)
def test_the_primary_device_takes_the_parameters_with_it(kind: Any, phase: str) -> None:
    devices = [simulated_device(failures=(Failure(kind, phase, 12),)), simulated_device()]
    if phase == "reduce":
        return  # its own gradients stay where they are
    group = DeviceGroup(devices, timeout=TIMEOUT)
    with pytest.raises(DeviceError) as caught:
        train(group, steps=20)
    if isinstance(caught.value, DeviceLostError) and "[parallel]" in str(caught.value):
        assert retired(group) == [0]
        assert "move the model to another device" in str(caught.value)
    group.close()


def test_all_other_devices_fail() -> None:
    devices = [
        simulated_device(),
        *(simulated_device(failures=(Failure("lost", "backward", n),)) for n in (1, 9, 30)),
    ]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    assert distance(alone(), train(group, steps=6)) < TOLERANCE
    assert retired(group) == [1, 2, 3]


def test_several_devices_fail_in_one_pass() -> None:
    devices = [
        simulated_device(),
        *(simulated_device(failures=(Failure(kind, "backward", 3),)) for kind in ("lost", "hang", "lost")),
    ]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    assert distance(alone(), train(group, steps=6)) < TOLERANCE
    assert retired(group) == [1, 2, 3]


@pytest.mark.parametrize("phase", ["forward", "backward", "reduce"])
def test_buffers_change_once_in_spite_of_another_try(phase: str) -> None:
    """Whether the first rows are the primary device's or not."""
    for slow in (False, True):
        devices = [
            simulated_device(gflops=1e-5 if slow else 1.0, launch_us=0.0),
            simulated_device(launch_us=0.0, failures=(Failure("lost", phase, 1),)),
            simulated_device(launch_us=0.0),
        ]
        group = DeviceGroup(devices, timeout=TIMEOUT)
        model = Counting()
        network = dl.parallel(model, group)
        for count in (1, 2, 3):
            network(dl.from_numpy(vectors(9, 0), devices[0])).square().mean().backward()
            assert model.calls.tolist() == [count]
        assert retired(group) == [1]
        group.close()


def test_statistics_move_once_in_spite_of_another_try() -> None:
    devices = [simulated_device(), simulated_device(failures=(Failure("lost", "backward", 2),))]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    model, single = convolutions(), convolutions()
    network = dl.parallel(model, group)
    network(dl.from_numpy(images(13, 0), devices[0])).square().mean().backward()
    single(dl.from_numpy(images(13, 0), "cpu"))
    assert retired(group) == [1]
    assert model[1].num_batches_tracked.item() == 1
    np.testing.assert_allclose(model[1].running_mean.numpy(), single[1].running_mean.numpy(), rtol=1e-5)
    assert np.ptp(single[1].running_mean.numpy()) > 1e-3
    group.close()


def test_gradients_of_inputs_in_spite_of_a_failure() -> None:
    """Also where it happens while they come to the host."""
    for phase, after in (("backward", 2), ("download", 1)):
        results = []
        for several in (False, True):
            devices = [simulated_device(), simulated_device(failures=(Failure("lost", phase, after),))]
            model = tiny()
            group = DeviceGroup(devices, timeout=TIMEOUT)
            network = dl.parallel(model, group) if several else model
            x = dl.from_numpy(vectors(9, 0), devices[0] if several else "cpu").requires_grad_()
            dl.manual_seed(1)
            network(x).square().mean().backward()
            results.append(x.grad.numpy().copy())
            assert retired(group) == ([1] if several else []), (phase, after)
            group.close()
        np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("function", ["wait_for_commands", "backpropagate"])
def test_a_device_that_does_not_come_back_is_retired(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one whose call blocks: the group gives it up, and its thread is left to it."""
    group = DeviceGroup(["cpu", "cpu#1"], timeout=1.0)
    model, single = tiny(), tiny()
    network = dl.parallel(model, group)
    x, opened, blocked = dl.from_numpy(vectors(9, 0), "cpu"), threading.Event(), threading.Event()
    network(x).square().mean().backward()
    model.zero_grad()
    original = getattr(sharded_step, function)

    def block(*args: Any, **options: Any) -> Any:
        if threading.current_thread().name.startswith("cpu#1"):
            blocked.set()
            assert opened.wait(TIMEOUT)
        return original(*args, **options)

    monkeypatch.setattr(sharded_step, function, block)
    try:
        for one in (network, single):
            dl.manual_seed(1)
            one(x).square().mean().backward()
        gradients = [[p.grad.numpy() for p in of.parameters()] for of in (model, single)]
        assert blocked.is_set()
        assert retired(group) == [1]
        assert "did not answer within 1 seconds" in group.retired[group.devices[1]]
        for actual, expected in zip(*gradients, strict=True):
            assert np.any(expected)
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)
    finally:
        opened.set()
        group.close()


# Random scripts of failures

STEPS = 6


@functools.cache
def tiny_alone() -> Outcome:
    return train(["cpu"], make=tiny, inputs=vectors, rows=11, steps=STEPS)


def play(seed: int) -> None:
    """Two to four devices, and one to three failures of those that are not the primary one."""
    numbers = random.Random(seed)
    count = numbers.randint(2, 4)
    scripts: list[list[Failure]] = [[] for _ in range(count)]
    for _ in range(numbers.randint(1, 3)):
        failure = Failure(numbers.choice(KINDS), numbers.choice(PHASES), numbers.randint(0, 60))
        scripts[numbers.randint(1, count - 1)].append(failure)
    devices = [
        simulated_device(gflops=numbers.choice((0.01, 0.02, 0.05)), launch_us=0.0, failures=tuple(script))
        for script in scripts
    ]
    group = DeviceGroup(devices, timeout=TIMEOUT)
    outcome = train(group, make=tiny, inputs=vectors, rows=11, steps=STEPS)
    shown = f"seed {seed}: {scripts}"
    assert distance(tiny_alone(), outcome) < TOLERANCE, shown
    for number in retired(group):
        device = devices[number]
        happened = [failure.kind for failure in scripts[number] if failure not in left(device)]
        assert set(happened) - {"slow"}, shown
    for device, script in zip(devices, scripts, strict=True):
        fatal = any(f.kind in FATAL and f not in left(device) for f in script)
        assert not fatal or device in group.retired, shown


def test_random_failures() -> None:
    for seed in range(25):
        play(seed)


@pytest.mark.full
@pytest.mark.parametrize("hundred", range(52))  # each has the deadline of a test
def test_more_random_failures(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        play(seed)
