"""The parts that models are cut into."""

from __future__ import annotations

from typing import Any

import dl4all as dl
from dl4all import nn
from dl4all.multi_device.placement.units import Unit, units
from dl4all.multi_device.trace.work_trace import trace_work
from dl4all.runtime.work import WorkCounts


class Functional(nn.Module):
    """Layers with ops before, between and behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x: dl.Tensor) -> dl.Tensor:
        y: dl.Tensor = self.b(self.a(x * 2.0).tanh()).exp()
        return y


def units_of(
    net: nn.Module, x: dl.Tensor, *, training: bool = True, state: float = 8.0, **loss: Any
) -> list[Unit]:
    return units(trace_work(net, x, training=training, **loss), state)


def test_ops_stay_with_the_module_before_them() -> None:
    net, x = Functional(), dl.rand(3, 6, device="cpu")
    a, b = units_of(net, x, loss=nn.MSELoss(), targets=[dl.rand(3, 2, device="cpu")])
    assert (a.name, a.modules, b.name, b.modules) == ("a", ("a",), "b", ("b",))
    assert a.forward.launches == 3  # times two, the layer, tanh
    assert b.forward.launches > 2  # the layer, exp, the loss
    assert a.handed == 3 * 4 * 4


def test_nothing_is_lost() -> None:
    for net, shape in (
        (dl.models.resnet18(base_channels=8), (2, 3, 32, 32)),
        (dl.models.LeNet(), (2, 1, 28, 28)),
    ):
        x = dl.rand(*shape, device="cpu")
        trace = trace_work(net, x)
        chain = units(trace, 8.0)
        assert sum((unit.forward + unit.backward for unit in chain), WorkCounts()) == trace.step
        assert sum(unit.parameters for unit in chain) == sum(p.nbytes for p in net.parameters())
        assert sum(unit.gradients for unit in chain) == sum(unit.parameters for unit in chain)
        assert sum(unit.saved for unit in chain) == sum(module.saved for module in trace.modules)


def test_residual_blocks_are_named_by_their_path() -> None:
    chain = units_of(dl.models.resnet18(base_channels=8), dl.rand(2, 3, 32, 32, device="cpu"))
    blocks = [f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)]
    assert [unit.name for unit in chain] == ["conv1", "bn1", "relu", "maxpool", *blocks, "avgpool", "fc"]


def test_state_and_update_of_optimizers() -> None:
    net, x = nn.Linear(5, 3), dl.rand(2, 5, device="cpu")
    nbytes = 4 * (5 * 3 + 3)
    for state in (0.0, 4.0, 8.0):
        (unit,) = units_of(net, x, state=state)
        assert unit.optimizer == state / 4 * nbytes
        assert unit.update == WorkCounts(2, (3 + 2 * state / 4) * nbytes)
        assert unit.static == 2 * nbytes + unit.optimizer
    (unit,) = units_of(net, x, training=False)
    assert (unit.optimizer, unit.gradients, unit.update.launches) == (0, 0, 0)
    assert unit.static == nbytes
