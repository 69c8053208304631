"""What is found out of a model before its first batch is split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.scheduler.cost.simulation import simulated_device

pytestmark = pytest.mark.usefixtures("deadline")


class Particular(dl.nn.Module):
    """Refuses numbers that it does not expect, in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = dl.nn.Linear(4, 3)

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        if not (x.numpy() > 0).all():
            raise LookupError("no such numbers")
        result: dl.Tensor = self.linear(x)
        return result


def inputs() -> dl.Tensor:
    return dl.from_numpy(np.random.default_rng(0).uniform(1, 2, (6, 4)).astype(np.float32), "cpu")


def test_a_model_that_looks_at_numbers_is_split_all_the_same() -> None:
    model = Particular()
    expected = model.linear(inputs()).numpy()
    net = dl.parallel(model, [simulated_device(gflops=0.001), simulated_device(gflops=0.001)])
    np.testing.assert_allclose(net(inputs()).numpy(), expected, rtol=1e-6)
    given = [net.balance.estimates[device].given for device in net.group]
    assert given == [3, 3]
    net.group.close()


def test_the_plan_adds_up() -> None:
    model = dl.nn.Sequential(dl.nn.Linear(64, 512), dl.nn.BatchNorm1d(512), dl.nn.Linear(512, 64))
    net = dl.parallel(model, [simulated_device(gflops=0.4), simulated_device(gflops=0.1)])
    plan = net.plan(dl.zeros(40, 64, device="cpu"))
    assert sum(plan.rows) == 40
    assert plan.rows[0] > 3 * plan.rows[1] > 0
    assert plan.seconds > max(plan.compute) > 0
    assert str(plan).count("rows") == 2
    net.group.close()


def test_devices_of_which_little_is_known_all_get_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any, **options: Any) -> None:
        raise AssertionError("traced")

    monkeypatch.setattr("dl4all.multi_device.data_parallel.module.is_measured", lambda device: False)
    monkeypatch.setattr("dl4all.multi_device.data_parallel.module.batch_work", forbidden)
    net = dl.parallel(dl.nn.Linear(4, 3), ["cpu", "cpu#1"])
    net(inputs())
    assert [net.balance.estimates[device].given for device in net.group] == [3, 3]
    net.group.close()
