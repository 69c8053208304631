"""Conditions and loops in compiled calls, beside the same in immediate mode and, where it can be, unrolled.

    python benchmarks/control_flow.py [--device vulkan:0] [--device cpu] [--repeat 11]

Each line is one interleaved run (benchmarks/turns.py) of a function, or with "step" of it and its gradients;
times are medians in milliseconds, with the ratio over immediate mode.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn

Call = Callable[[Any], Any]


def routed(device: str) -> tuple[Call, Any]:
    """A network of which one of two halves computes, by a value."""
    halves = [dl.models.MLP(64, hidden=[128, 128], num_classes=64).to(device) for _ in range(2)]
    head = dl.models.MLP(64, hidden=[128, 128], num_classes=10).to(device)

    def function(x: Any) -> Any:
        return head(dl.cond(x.mean() > 0, halves[0], halves[1], (x,))).square().mean()

    return function, dl.randn(32, 64, device=device)


def newton(device: str) -> tuple[Call, Any]:
    """Square roots by as many steps as they take, some 12."""

    def step(x: Any, a: Any) -> Any:
        return (x + a / x) / 2, a

    def function(a: Any) -> Any:
        return dl.while_loop(lambda x, a: ((x * x - a).abs() > 1e-4 * a).any(), step, (a, a))[0].mean()

    return function, dl.rand(4096, device=device) * 1000 + 1


def recurrent(device: str, *, unrolled: bool = False) -> tuple[Call, Any]:
    """A recurrent cell over 32 steps."""
    cell = dl.nn.GRUCell(32, 64).to(device)
    start = dl.zeros(16, 64, device=device)

    def turn(h: Any, x: Any) -> Any:
        h = cell(x, h)
        return h, h

    def function(xs: Any) -> Any:
        if not unrolled:
            return dl.scan(turn, start, xs)[1].square().mean()
        h, total = start, 0.0
        for x in xs:
            h = cell(x, h)
            total = h.square().mean() + total
        return total

    return function, dl.randn(32, 16, 32, device=device)


def step_of(function: Call) -> Call:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        function(x).backward()
        return x.grad

    return step


@click.command()
@click.option("--device", "devices", multiple=True, default=("vulkan:0", "cpu"), show_default=True)
@click.option("--repeat", default=11, show_default=True)
def main(devices: tuple[str, ...], repeat: int) -> None:
    """Conditions and loops in compiled calls."""
    table = Table("device", "function", "immediate", "compiled", "ratio", "specialisations")
    for device in devices:
        for name, (function, x) in {
            "cond": routed(device),
            "while_loop": newton(device),
            "scan": recurrent(device),
            "scan, unrolled": recurrent(device, unrolled=True),
        }.items():
            for kind, plain in (("", function), (" step", step_of(function))):
                compiled = dl.compile(function)
                again = compiled if not kind else step_of(compiled)
                calls = {"immediate": waiting(plain, x), "compiled": waiting(again, x)}
                times = in_turn(calls, repeat, warm_up=6)
                first, second = (median(times[one].clock) for one in calls)
                count = sum(map(len, compiled.specializations.values()))
                cells = f"{first:.2f}", f"{second:.2f}", f"{second / first:.2f}", str(count)
                table.add_row(device, name + kind, *cells)
    Console(width=120).print(table)


def waiting(function: Call, x: Any) -> Callable[[], None]:
    """The call with a wait for its device, on other values each time: their signs alternate."""
    inputs = [x, x * 0.9, (x - 1) * 0.9] if (x < 0).any().item() else [x, x * 0.9]
    numbers = iter(range(10**9))

    def run() -> None:
        function(inputs[next(numbers) % len(inputs)])
        x.device.synchronize()

    return run


if __name__ == "__main__":
    main()
