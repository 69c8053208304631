"""How fast groups of simulated devices train ResNet-18, by the virtual clock."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import dl4all as dl
from dl4all.runtime.simulated import clock
from dl4all.scheduler.simulation import simulated_device

IMAGES, SHAPE = 64, (3, 224, 224)


def step_seconds(factors: tuple[int, ...], link: float) -> tuple[float, Any]:
    """Virtual seconds of a step on devices so many times as fast as 100 GFLOP/s, and the plan of several."""
    devices = [
        simulated_device(
            gflops=100.0 * f, gb_per_s=100.0 * f, link_gb_per_s=link, memory=1 << 40, computes=False
        )
        for f in factors
    ]
    model = dl.models.resnet18()
    alone = len(devices) == 1
    net: Any = model.to(devices[0]) if alone else dl.parallel(model, dl.DeviceGroup(devices))
    optimizer = dl.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = dl.zeros(IMAGES, *SHAPE, device="cpu")
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
def alone(factor: int, link: float) -> float:
    return step_seconds((factor,), link)[0]


@pytest.mark.parametrize(
    ("factors", "link"),
    [
        ((4, 2, 1), 1.0),
        *(
            pytest.param(factors, link, marks=pytest.mark.full)
            for factors in ((1, 1), (1,) * 4, (1,) * 8, (4, 2, 1))
            for link in (10.0, 1.0)
            if (factors, link) != ((4, 2, 1), 1.0)
        ),
    ],
)
def test_a_group_is_nearly_as_fast_as_its_devices_together(factors: tuple[int, ...], link: float) -> None:
    seconds, plan = step_seconds(factors, link)
    assert sum(plan.rows) == IMAGES
    assert min(plan.rows) > 0
    ideal = 1 / sum(1 / alone(factor, link) for factor in factors)
    assert ideal / seconds > 0.9
    assert seconds < min(alone(factor, link) for factor in factors)
    assert plan.seconds == pytest.approx(seconds, rel=0.15)


def test_a_device_that_would_hold_up_the_others_gets_nothing() -> None:
    fast = {"gflops": 1000.0, "gb_per_s": 100.0, "memory": 1 << 40, "computes": False}
    devices = [simulated_device(**fast), simulated_device(**fast | {"link_gb_per_s": 0.01})]
    net = dl.parallel(dl.models.resnet18(), devices)
    assert net.plan(dl.zeros(8, *SHAPE, device="cpu")).rows == (8, 0)
    net.group.close()
