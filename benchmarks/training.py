"""Milliseconds of a training step, dl4all on each device beside PyTorch on the CPU, in turn in one run.

    python benchmarks/training.py [--case mlp --case cnn ...] [--device cpu ...] [--repeat 10] [--json]

A step is: forget the gradients, forward, cross entropy, backward, SGD with momentum, and the loss as a Python
number, which waits for the device. Data lies on the device already. Weights and batches are the same
everywhere, and so is the loss of the first step, to 1e-4. Medians over the repeats, which go round the
devices; PyTorch uses as many threads as there are cores.

Cases: an MLP 784-256-128-10 with batch 128; a CNN conv16-pool-conv32-pool-fc on 28x28 with batch 64;
ResNet-18 with batch 8 at 224x224.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.torch_resnet import ResNet18

WARM_UP = 3  # steps that compile kernels and fill pools


class Case(NamedTuple):
    """Twins with the same names of weights, and the shape of a batch."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    shape: tuple[int, ...]


def mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


CASES = {
    "mlp": Case(lambda: mlp(dl.nn), lambda: mlp(torch.nn), (128, 784)),
    "cnn": Case(lambda: cnn(dl.nn), lambda: cnn(torch.nn), (64, 1, 28, 28)),
    "resnet18": Case(lambda: dl.models.resnet18(10), lambda: ResNet18(10), (8, 3, 224, 224)),
}


def step_of(lib: Any, functional: Any, net: Any, x: Any, y: Any) -> Callable[[], float]:
    optimizer = lib.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def steps(case: Case, devices: tuple[str, ...]) -> dict[str, Callable[[], float]]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(case.shape).astype(np.float32)
    y = rng.integers(0, 10, case.shape[0])
    torch.manual_seed(0)
    theirs = case.theirs().train()
    weights = {name: value.detach().numpy().copy() for name, value in theirs.state_dict().items()}
    found = {"pytorch": step_of(torch, torch.nn.functional, theirs, torch.from_numpy(x), torch.from_numpy(y))}
    for device in devices:
        ours = case.ours().train()
        ours.load_state_dict(weights)
        net = ours.to(device)
        data = dl.tensor(x, device=device), dl.tensor(y, device=device)
        found[device] = step_of(dl, dl.nn.functional, net, *data)
    return found


def measure(case: Case, devices: tuple[str, ...], repeat: int) -> dict[str, float]:
    """Milliseconds by device."""
    todo = steps(case, devices)
    first = {name: step() for name, step in todo.items()}
    for name, loss in first.items():
        if abs(loss - first["pytorch"]) > 1e-4 * abs(first["pytorch"]):
            raise SystemExit(f"{name} has a loss of {loss}, PyTorch one of {first['pytorch']}")
    times: dict[str, list[float]] = {name: [] for name in todo}
    for turn in range(WARM_UP + repeat):
        for name, step in todo.items():
            start = time.perf_counter()
            step()
            if turn >= WARM_UP:
                times[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(spent) for name, spent in times.items()}


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), default=("mlp", "cnn"))
@click.option(
    "--device", "devices", multiple=True, default=("cpu", "vulkan:0", "kompute:0"), show_default=True
)
@click.option("--repeat", default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(names: tuple[str, ...], devices: tuple[str, ...], repeat: int, as_json: bool) -> None:
    torch.set_num_threads(os.cpu_count() or 1)
    found = {name: measure(CASES[name], devices, repeat) for name in names}
    if as_json:
        print(json.dumps(found))
        return
    table = Table(title="ms a step (and times PyTorch's)")
    table.add_column("case")
    for name in ("pytorch", *devices):
        table.add_column(name, justify="right")
    for name, times in found.items():
        theirs = times["pytorch"]
        rows = [
            f"{spent:.2f} ({spent / theirs:.1f})" for device, spent in times.items() if device != "pytorch"
        ]
        table.add_row(name, f"{theirs:.2f}", *rows)
    Console().print(table)


if __name__ == "__main__":
    main()
