"""``vmap`` and a loop over the samples, in one run: gradients of each sample's loss, and of their sum.

    python benchmarks/vmap.py [--device vulkan:0] [--samples 64] [--repeat 9]

The network is a multilayer perceptron, 32-64-64-10, with cross entropy. Every repeat runs each way once, in
turn; times are medians. The results of both ways are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all import nn
from dl4all.nn import functional as F

WARM_UP = 2


def looped(function: Any) -> Any:
    """The function for each sample, one after the other."""

    def called(*operands: Any) -> Any:
        results = [function(*sample) for sample in zip(*operands, strict=True)]
        if isinstance(results[0], tuple):
            return tuple(dl.stack(parts) for parts in zip(*results, strict=True))
        return dl.stack(results)

    return called


@click.command()
@click.option("--device", default="auto", show_default=True)
@click.option("--samples", default=64, show_default=True)
@click.option("--repeat", default=9, show_default=True)
def main(device: str, samples: int, repeat: int) -> None:
    dl.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    net.to(device)
    parameters = list(net.parameters())
    place = parameters[0].device
    x, y = dl.randn(samples, 32, device=place), dl.tensor(np.arange(samples) % 10, device=place)

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(net(x), y)

    def slopes(x: Any, y: Any) -> Any:
        return dl.grad(loss(x, y), parameters)

    works: dict[str, Callable[[Any], Any]] = {
        "each sample's gradients": lambda way: way(slopes)(x, y),
        "gradients of the sum": lambda way: dl.grad(way(loss)(x, y).sum(), parameters),
    }
    table = Table(title=f"{samples} samples, ms ({place})")
    for name in ("", "vmap", "loop", "loop / vmap"):
        table.add_column(name, justify="left" if not name else "right")
    for what, work in works.items():
        times: dict[Any, list[float]] = {dl.vmap: [], looped: []}
        for turn in range(repeat + WARM_UP):
            results = []
            for way, spent in times.items():
                dl.synchronize()
                start = time.perf_counter()
                results.append(work(way))
                dl.synchronize()
                if turn >= WARM_UP:
                    spent.append(time.perf_counter() - start)
            for one, other in zip(*results, strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-5)
        ours, theirs = (statistics.median(spent) * 1e3 for spent in times.values())
        table.add_row(what, f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
