"""Milliseconds of an optimizer's step over the parameters of ResNet-18, beside PyTorch's on the CPU.

    python benchmarks/optimizers.py [--case sgd --case adamw] [--device cpu ...] [--repeat 20] [--json]

The gradients are those of a backward pass, so that they lie where they lie in training. ``ms`` is until the
device is done, ``host`` what the calling thread is busy for, ``dispatches`` how many kernels a step takes.
PyTorch's optimizers run with ``foreach=True`` and as many threads as there are cores. Medians over the
repeats, which go round the devices.
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

WARM_UP = 3  # steps that compile kernels, make the state and fill pools
IMAGES = (2, 3, 64, 64)  # for the gradients
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "adamw": ("AdamW", {"lr": 1e-3}),
}


class Stepper(NamedTuple):
    """A step, what waits for it, and how many dispatches one takes."""

    step: Callable[[], Any]
    wait: Callable[[], None]
    dispatches: int


class Spent(NamedTuple):
    """Milliseconds of a step: all of it, and of the calling thread."""

    ms: float
    host: float
    dispatches: int


def ours(name: str, options: dict[str, Any], device: str) -> Stepper:
    net = dl.models.resnet18(10).to(device)
    rng = np.random.default_rng(0)
    x = dl.tensor(rng.standard_normal(IMAGES).astype(np.float32), device=device)
    dl.nn.functional.cross_entropy(net(x), dl.tensor([0, 1], device=device)).backward()
    optimizer = getattr(dl.optim, name)(net.parameters(), **options)
    optimizer.step()
    with dl.profile() as profile:
        optimizer.step()
    kernels = sum(event.kind == "kernel" for event in profile.events)
    return Stepper(optimizer.step, lambda: dl.synchronize(device), kernels)


def theirs(name: str, options: dict[str, Any]) -> Stepper:
    net = ResNet18(10)
    loss: Any = torch.nn.functional.cross_entropy(net(torch.randn(IMAGES)), torch.tensor([0, 1]))
    loss.backward()
    optimizer = getattr(torch.optim, name)(net.parameters(), **options, foreach=True)
    return Stepper(optimizer.step, lambda: None, 0)


def measure(case: str, devices: tuple[str, ...], repeat: int) -> dict[str, Spent]:
    """By device."""
    todo = {"pytorch": theirs(*CASES[case])} | {device: ours(*CASES[case], device) for device in devices}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in todo}
    for turn in range(WARM_UP + repeat):
        for name, one in todo.items():
            one.wait()
            start = time.perf_counter()
            one.step()
            asked = time.perf_counter()
            one.wait()
            if turn >= WARM_UP:
                times[name].append((time.perf_counter() - start, asked - start))
    found = {}
    for name, spent in times.items():
        ms, host = (1e3 * statistics.median(kind) for kind in zip(*spent, strict=True))
        found[name] = Spent(ms, host, todo[name].dispatches)
    return found


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), default=tuple(CASES))
@click.option(
    "--device", "devices", multiple=True, default=("cpu", "vulkan:0", "kompute:0"), show_default=True
)
@click.option("--repeat", default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(names: tuple[str, ...], devices: tuple[str, ...], repeat: int, as_json: bool) -> None:
    torch.set_num_threads(os.cpu_count() or 1)
    found = {name: measure(name, devices, repeat) for name in names}
    if as_json:
        print(
            json.dumps(
                {name: {key: spent._asdict() for key, spent in of.items()} for name, of in found.items()}
            )
        )
        return
    table = Table(title="ResNet-18, a step of an optimizer")
    for column in ("optimizer", "on", "ms", "host", "dispatches"):
        table.add_column(column, justify="left" if column in ("optimizer", "on") else "right")
    for name, of in found.items():
        for key, spent in of.items():
            kernels = str(spent.dispatches) if spent.dispatches else ""
            table.add_row(name, key, f"{spent.ms:.2f}", f"{spent.host:.2f}", kernels)
    Console().print(table)


if __name__ == "__main__":
    main()
