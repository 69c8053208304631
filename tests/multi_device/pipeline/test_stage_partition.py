"""Where models are cut: by hand, and by predicted times and memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.multi_device.pipeline.chain import chain_of, inseparable, starts_by_hand
from dl4all.multi_device.pipeline.layer_cost import layer_costs
from dl4all.multi_device.pipeline.ordered_partition import ordered_partition
from dl4all.multi_device.placement.partition import UnitRange
from dl4all.ops.random.generator import default_generator
from dl4all.runtime.work import WorkCounts
from dl4all.scheduler.cost.simulation import simulated_device

RESNET = chain_of(dl.models.resnet18(4, 3, 2))
NAMES = [layer.name for layer in RESNET]


# Chains


def test_a_chain_is_the_network() -> None:
    network = dl.nn.Sequential(
        dl.nn.Sequential(dl.nn.Linear(4, 5), dl.nn.Sequential(dl.nn.Tanh())), dl.models.MLP(5, [3], 2)
    )
    chain = chain_of(network)
    assert [layer.name for layer in chain] == ["0.0", "0.1.0", "1.flatten", "1.0", "1.1", "1.2", "1.3"]
    x: Any = dl.randn(3, 4)
    expected = network.eval()(x)
    for layer in chain:
        x = layer.call(x)
    np.testing.assert_array_equal(x.numpy(), expected.numpy())


def test_a_watched_part_stays_whole() -> None:
    inner = dl.nn.Sequential(dl.nn.Tanh(), dl.nn.Tanh())
    network = dl.nn.Sequential(inner, dl.nn.Tanh())
    remove = inner.register_forward_hook(lambda module, inputs, output: None)
    assert [layer.name for layer in chain_of(network)] == ["0", "1"]
    remove()
    assert [layer.name for layer in chain_of(network)] == ["0.0", "0.1", "1"]


class Own(dl.nn.Sequential):
    """With a ``forward`` that its layers do not tell."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) + x


class Listed(dl.nn.Module):
    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self._links = layers

    def layers(self) -> list[tuple[str, Any]]:
        return [(str(number), layer) for number, layer in enumerate(self._links)]


class Named(dl.nn.Module):
    """With an attribute of the name of the method."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = dl.nn.ModuleList([dl.nn.Tanh()])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Own(dl.nn.Tanh()), "Own is no chain of layers: use nn.Sequential, or give it a method layers()"),
        (Named(), "Named is no chain of layers"),
        (dl.nn.Linear(2, 2), "Linear is no chain of layers"),
        (dl.nn.Sequential(), "Sequential has no layers"),
        (Listed(dl.nn.Tanh(), 3), "layer '1' must be a module or a function, got 3"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_chain(model: dl.nn.Module, message: str) -> None:
    with pytest.raises(ArgumentError, match=r"\[pipeline\]") as error:
        chain_of(model)
    assert message in str(error.value)


# By hand


@pytest.mark.parametrize(
    ("split", "starts"),
    [
        (["layer2", "layer4"], [0, 6, 10]),
        (["conv1", "layer1.1"], [0, 5]),
        ([4, "fc"], [0, 4, 14]),
        ([0], [0]),
        ([], [0]),
        (
            [NAMES[:4], ["layer1", "layer2", 8, "layer3.1"], ["layer4", "avgpool", "flatten", "fc"]],
            [0, 4, 10],
        ),
    ],
    ids=str,
)
def test_a_split_by_hand(split: Any, starts: list[int]) -> None:
    assert starts_by_hand(split, RESNET, devices=3) == starts


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (["layer5"], "no layer is called 'layer5'; there are conv1, bn1"),
        (["layer"], "no layer is called 'layer'"),
        ([15], "no layer is called 15"),
        ([-1], "no layer is called -1"),
        (["layer4", "layer2"], "in the order of the layers, got ['conv1', 'layer4.0', 'layer2.0']"),
        (["layer2", "layer2.0"], "in the order of the layers"),
        (["layer1", "layer2", "layer3"], "4 stages need as many devices, the group has 3"),
        ("layer2", "split must be 'auto', a list"),
        ([["conv1"], "bn1"], "expected a list of layers for each stage, got 'bn1'"),
        ([NAMES, []], "expected a list of layers for each stage, got []"),
        ([NAMES[:3], NAMES[4:]], "all layers once, in their order"),
        ([NAMES[:3], NAMES[2:]], "all layers once, in their order"),
    ],
    ids=str,
)
def test_a_split_that_cannot_be(split: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=r"\[pipeline\]") as error:
        starts_by_hand(split, RESNET, devices=3)
    assert message in str(error.value)


def test_where_a_chain_cannot_be_cut() -> None:
    shared, tanh = dl.nn.BatchNorm1d(4), dl.nn.Tanh()
    chain = chain_of(dl.nn.Sequential(dl.nn.Linear(4, 4), shared, tanh, shared, tanh, dl.nn.Linear(4, 4)))
    assert inseparable(chain) == {2: "1 and 3 are one module", 3: "1 and 3 are one module"}


# By numbers


def every_plan(
    seconds: Sequence[Sequence[float]],
    limits: Sequence[float],
    nbytes: Any,
    micro_batches: int,
    sending: Sequence[Sequence[float]],
    receiving: Sequence[Sequence[float]],
) -> dict[tuple[UnitRange, ...], float]:
    """All ways to cut, and how long a batch takes with each."""
    layers, plans = len(seconds[0]), {}
    for used in range(1, len(seconds) + 1):
        for devices in combinations(range(len(seconds)), used):
            for cuts in combinations(range(1, layers), used - 1):
                edges = [0, *cuts, layers]
                parts = tuple(UnitRange(edges[i], edges[i + 1], d) for i, d in enumerate(devices))
                if any(nbytes(p.start, p.end, used - 1 - i) > limits[p.device] for i, p in enumerate(parts)):
                    continue
                times = []
                for p in parts:
                    times.append(sum(seconds[p.device][p.start : p.end]))
                    times.append(sending[p.device][p.end - 1] if p.end < layers else 0.0)
                    times.append(receiving[p.device][p.start - 1] if p.start else 0.0)
                plans[parts] = sum(times) + (micro_batches - 1) * max(times)
    return plans


@pytest.mark.parametrize("seed", range(12))
def test_it_finds_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    devices, layers, micro_batches = 2 + seed % 3, 5 + seed % 3, int(rng.integers(1, 9))
    speed = rng.uniform(0.5, 4.0, (devices, 1))
    seconds = (rng.uniform(0.2, 1.0, layers) * speed).tolist()
    sending, receiving = rng.uniform(0.0, 0.5, (2, devices, layers)).tolist()
    size = rng.integers(1, 5, layers)
    limits = rng.uniform(size.sum() * 0.4, size.sum() * 1.5, devices).tolist()

    def nbytes(start: int, stop: int, after: int) -> float:
        return float(size[start:stop].sum()) * (1 + 0.2 * after)

    plans = every_plan(seconds, limits, nbytes, micro_batches, sending, receiving)
    found = ordered_partition(seconds, limits, nbytes, micro_batches, sending=sending, receiving=receiving)
    if not plans:
        assert found is None
        return
    assert found is not None
    assert plans[tuple(found)] == pytest.approx(min(plans.values()))


def test_the_cases_among_them() -> None:
    """Memory makes a difference, and a device is left out."""
    layers = [1.0] * 6
    free = ordered_partition([layers, layers], [10.0, 10.0], lambda start, stop, after: stop - start, 8)
    assert free == [UnitRange(0, 3, 0), UnitRange(3, 6, 1)]
    tight = ordered_partition([layers, layers], [2.0, 10.0], lambda start, stop, after: stop - start, 8)
    assert tight == [UnitRange(0, 2, 0), UnitRange(2, 6, 1)]
    assert ordered_partition([layers, layers], [2.0, 3.0], lambda start, stop, after: stop - start, 8) is None
    slow = [100.0] * 6
    assert ordered_partition([slow, layers], [9.0, 9.0], lambda start, stop, after: 0, 8) == [
        UnitRange(0, 6, 1)
    ]
    uncut = ordered_partition([layers, layers], [9.0, 9.0], lambda start, stop, after: 0, 8, uncut={3})
    assert uncut in ([UnitRange(0, 2, 0), UnitRange(2, 6, 1)], [UnitRange(0, 4, 0), UnitRange(4, 6, 1)])
    link = [[50.0] * 6] * 2
    assert ordered_partition([layers, layers], [9.0, 9.0], lambda a, b, after: 0, 8, sending=link) in (
        [UnitRange(0, 6, 0)],
        [UnitRange(0, 6, 1)],
    )


# What layers cost


def test_the_work_of_layers_is_that_of_a_step() -> None:
    network = dl.models.LeNet()
    x, weights = dl.randn(5, 1, 28, 28), dl.randn(5, 10)
    costs = layer_costs(chain_of(network), x)
    device = simulated_device()
    assert device.simulated is not None
    moved = dl.models.LeNet().to(device)
    moved(x.to(device)).backward(weights.to(device))
    total = sum((cost.forward + cost.backward for cost in costs), WorkCounts())
    ran = device.simulated.work
    # One by one, the layers' results get gradients that take no work of the loss's.
    assert total.flops == pytest.approx(ran.flops)
    assert total.launches == pytest.approx(ran.launches, abs=2)
    assert total.nbytes == pytest.approx(ran.nbytes, rel=0.02)


def test_the_sizes_of_layers() -> None:
    network = dl.nn.Sequential(
        dl.nn.Linear(8, 16, bias=False), dl.nn.BatchNorm1d(16), dl.nn.ReLU(), dl.nn.Dropout(0.5)
    )
    network.get_parameter("1.bias").requires_grad_(False)
    linear, norm, relu, dropout = layer_costs(chain_of(network), dl.randn(4, 8))
    row = 4 * 16 * 4
    assert (linear.learned, linear.constant, linear.output) == (8 * 16 * 4, 0, row)
    assert (norm.learned, norm.constant) == (16 * 4, 3 * 16 * 4 + 8)
    assert (linear.kept, linear.keeps_output) == (0, False)
    assert row <= norm.kept < 2 * row  # its input, and statistics
    assert (relu.kept, relu.keeps_output) == (row, True)
    assert dropout.kept <= 2 * row
    assert linear.temporary >= 2 * row  # the result and its gradient


def test_measuring_leaves_no_trace() -> None:
    network = dl.nn.Sequential(
        dl.nn.Linear(8, 16), dl.nn.BatchNorm1d(16), dl.nn.ReLU(inplace=True), dl.nn.Dropout(0.5)
    )
    calls: list[int] = []
    network[0].register_forward_hook(lambda module, inputs, output: calls.append(1))
    before = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    state = default_generator().get_state()
    layer_costs(chain_of(network), dl.randn(4, 8))
    assert default_generator().get_state() != state  # by randn
    state = default_generator().get_state()
    layer_costs(chain_of(network), dl.ones(4, 8))
    assert default_generator().get_state() == state
    assert not calls
    assert all(p.grad is None for p in network.parameters())
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])


def test_what_cannot_be_measured() -> None:
    class Looks(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> dl.Tensor:
            if not np.isfinite(x.numpy()).all() or not x.numpy().any():
                raise ValueError("it looks at numbers")
            return x

    network = dl.nn.Sequential(dl.nn.Linear(4, 4), Looks())
    with pytest.raises(ArgumentError, match=r"'1' cannot be measured .*\(it looks at numbers.*say by split="):
        layer_costs(chain_of(network), dl.ones(2, 4))
