"""How fast groups of simulated devices train, by the virtual clock; with ResNet-18 in a full run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import dl4all as dl
from dl4all.runtime.simulated import clock
from dl4all.scheduler.cost.simulation import simulated_device

IMAGES = 64


def convolutions() -> dl.nn.Sequential:
    """A small network with batch normalization, whose parameters take little of the host's memory."""
    layers: list[dl.nn.Module] = []
    for channels, out in ((3, 32), (32, 64), (64, 64)):
        layers += [dl.nn.Conv2d(channels, out, 3, 2, 1), dl.nn.BatchNorm2d(out), dl.nn.ReLU()]
    return dl.nn.Sequential(*layers, dl.nn.Flatten(), dl.nn.Linear(64 * 64, 10))


NETWORKS: dict[str, tuple[Callable[[], dl.nn.Module], tuple[int, ...], float]] = {
    "resnet18": (dl.models.resnet18, (3, 224, 224), 100.0),
    "convolutions": (convolutions, (3, 64, 64), 1.0),
}
"""Each with the shape of an image, and with GFLOP/s at which computing dominates."""


def step_seconds(network: str, factors: tuple[int, ...], link: float) -> tuple[float, Any]:
    """Virtual seconds of a step on devices so many times as fast as another, and the plan of several."""
    make, shape, speed = NETWORKS[network]
    devices = [
        simulated_device(
            gflops=speed * f, gb_per_s=speed * f, link_gb_per_s=link, memory=1 << 40, computes=False
        )
        for f in factors
    ]
    model = make()
    alone = len(devices) == 1
    net: Any = model.to(devices[0]) if alone else dl.parallel(model, dl.DeviceGroup(devices))
    optimizer = dl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = dl.zeros(IMAGES, *shape, device="cpu")
    y = dl.zeros(IMAGES, dtype="int64", device=devices[0])
    begun = 0.0
    for _ in range(2):  # the first sends all parameters
        begun = clock.now()
        loss = dl.nn.functional.cross_entropy(net(x.to(devices[0]) if alone else x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        devices[0].synchronize()
    seconds = clock.now() - begun
    if alone:
        return seconds, None
    plan = net.plan(x)
    net.group.close()
    return seconds, plan


@functools.cache
def alone(network: str, factor: int, link: float) -> float:
    return step_seconds(network, (factor,), link)[0]


GROUPS = [(factors, link) for factors in ((1, 1), (1,) * 4, (1,) * 8, (4, 2, 1)) for link in (10.0, 1.0)]


@pytest.mark.parametrize(
    ("network", "factors", "link"),
    [
        *(pytest.param("resnet18", *group, marks=pytest.mark.full) for group in GROUPS),
        *(("convolutions", *group) for group in GROUPS),
    ],
)
def test_a_group_is_nearly_as_fast_as_its_devices_together(
    network: str, factors: tuple[int, ...], link: float
) -> None:
    seconds, plan = step_seconds(network, factors, link)
    assert sum(plan.rows) == IMAGES
    assert min(plan.rows) > 0
    ideal = 1 / sum(1 / alone(network, factor, link) for factor in factors)
    assert ideal / seconds > 0.9
    assert seconds < min(alone(network, factor, link) for factor in factors)
    assert plan.seconds == pytest.approx(seconds, rel=0.15)


def test_a_device_that_would_hold_up_the_others_gets_nothing() -> None:
    fast = {"gflops": 1000.0, "gb_per_s": 100.0, "memory": 1 << 40, "computes": False}
    devices = [simulated_device(**fast), simulated_device(**fast | {"link_gb_per_s": 0.01})]
    net = dl.parallel(convolutions(), devices)
    assert net.plan(dl.zeros(8, 3, 64, 64, device="cpu")).rows == (8, 0)
    net.group.close()
