"""Errors of gradients of float32 against those of float64: PyTorch's on the CPU, and dl4all's on each device.

    python benchmarks/accuracy.py [--smooth] [--case cnn ...] [--device cpu ...] [--seeds 5] [--json]

The networks of ``benchmarks/networks`` take one training step from the same weights on the same batch, and so
does DenseNet-121 on two images of 128 x 128. Each figure is the relative error of all gradients of the
parameters together, in the L2 norm, against PyTorch's in float64: the median over seeds, of weights and data.

Figures of networks with ReLU are a matter of chance: where an element before it is so near to 0 that
rounding decides about its sign, one element's gradient is 0 or not, in any library. ``flips`` counts seeds
with an error of more than 1e-4. With ``--smooth``, SiLU takes ReLU's place, which has no such kink, and the
errors of sums are left. Dropout is switched off, and networks that draw random numbers are left out. The last
lines are the geometric mean and the worst of the ratios to PyTorch's errors.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.networks import CASES
from benchmarks.networks.case import Array, Case, images, supervised

FLIP = 1e-4
RANDOM = 1e-2  # between float32 and float64: the network draws random numbers
GROWTH, BLOCKS = 32, (6, 12, 24, 16)
REFERENCE = "pytorch"
Gradients = dict[str, Array]


def densenet(lib: Any) -> Any:
    """DenseNet-121 (Huang and others, 2016, https://arxiv.org/abs/1608.06993)."""
    nn = lib.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int) -> None:
            super().__init__()
            wide = 4 * GROWTH
            self.new = nn.Sequential(
                nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, wide, 1, bias=False),
                nn.BatchNorm2d(wide), nn.ReLU(), nn.Conv2d(wide, GROWTH, 3, padding=1, bias=False),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return lib.cat([x, self.new(x)], 1)

    channels = 2 * GROWTH
    layers = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for block, count in enumerate(BLOCKS):
        for _ in range(count):
            layers.append(Layer(channels))
            channels += GROWTH
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if block + 1 < len(BLOCKS):
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


NETWORKS: dict[str, Case] = {**CASES, "densenet121": Case(densenet, images(2, 3, 128, 1000), supervised())}


def smoothed(lib: Any, net: Any) -> Any:
    """The network with SiLU for ReLU and ReLU6 among its layers."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ in ("ReLU", "ReLU6"):
                setattr(module, name, lib.nn.SiLU())
    return net


def gradients(lib: Any, case: Case, net: Any, batch: tuple[Any, ...]) -> Gradients:
    """The gradients of the parameters after a step."""
    for module in net.modules():
        if type(module).__name__.startswith("Dropout"):
            module.p = 0.0
    case.training(lib, net.train())(*batch)
    found = {}
    for name, parameter in net.named_parameters():
        if parameter.grad is not None:
            found[name] = parameter.grad.detach().cpu().numpy().astype(np.float64)
    return found


def error(found: Gradients, right: Gradients) -> float:
    """The relative error of all gradients together."""
    difference = sum(float(np.square(found[name] - value).sum()) for name, value in right.items())
    return float(np.sqrt(difference / sum(float(np.square(value).sum()) for value in right.values())))


def errors(name: str, seed: int, devices: tuple[str, ...], smooth: bool) -> dict[str, float]:
    """The errors of PyTorch and of each device."""
    case = NETWORKS[name]

    def network(lib: Any) -> Any:
        made = case.network(lib)
        return smoothed(lib, made) if smooth else made

    arrays = case.batch(np.random.default_rng(seed))
    torch.manual_seed(seed)
    net = network(torch)
    weights = {key: value.detach().numpy().copy() for key, value in net.state_dict().items()}

    def of_torch(dtype: torch.dtype) -> Gradients:
        own = network(torch)
        own.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in weights.items()})
        tensors = map(torch.from_numpy, arrays)
        batch = tuple(one.to(dtype) if one.is_floating_point() else one for one in tensors)
        return gradients(torch, case, own.to(dtype), batch)

    right = of_torch(torch.float64)
    found = {REFERENCE: error(of_torch(torch.float32), right)}
    for device in devices:
        own = network(dl)
        own.load_state_dict(weights)
        batch = tuple(dl.tensor(array, device=device) for array in arrays)
        found[device] = error(gradients(dl, case, own.to(device), batch), right)
    return found


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(NETWORKS)), help="All unless given.")
@click.option("--device", "devices", multiple=True, default=("cpu", "vulkan:0"), show_default=True)
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--smooth", is_flag=True, help="With SiLU in the place of ReLU.")
@click.option("--json", "as_json", is_flag=True)
def main(names: tuple[str, ...], devices: tuple[str, ...], seeds: int, smooth: bool, as_json: bool) -> None:
    """Compare the errors of gradients."""
    for lib in (torch, dl) if smooth else ():
        lib.nn.functional.relu = lib.nn.functional.silu
    columns = (REFERENCE, *devices)
    table = Table("network", *columns, title="relative errors of gradients (flips)")
    found: dict[str, dict[str, list[float]]] = {}
    ratios: dict[str, list[float]] = {device: [] for device in devices}
    for name in names or NETWORKS:
        each = [errors(name, seed, devices, smooth) for seed in range(seeds)]
        found[name] = {column: [one[column] for one in each] for column in columns}
        medians = {column: statistics.median(values) for column, values in found[name].items()}
        if medians[REFERENCE] > RANDOM:
            click.echo(f"{name} draws random numbers", err=True)
            continue
        flips = {column: sum(value > FLIP for value in values) for column, values in found[name].items()}
        table.add_row(name, *(f"{medians[column]:.1e} ({flips[column]})" for column in columns))
        for device in devices:
            ratios[device].append(medians[device] / medians[REFERENCE])
    if as_json:
        print(json.dumps(found))
        return
    table.add_section()
    table.add_row("geometric mean", "1", *(f"{statistics.geometric_mean(ratios[d]):.2f}" for d in devices))
    table.add_row("worst", "", *(f"{max(ratios[device]):.2f}" for device in devices))
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()
