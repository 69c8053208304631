"""Milliseconds of a training step: dl4all on each device, PyTorch on the CPU, tinygrad, in turn in one run.

    python benchmarks/training.py [--case mlp --case cnn ...] [--device cpu ...] [--compiled] [--threads 1]
                                  [--cpu-time] [--repeat 10] [--json]

A step is: forget the gradients, forward, loss, backward, the optimizer, and the loss as a Python number,
which waits for the device. Networks, losses and optimizers are those of ``benchmarks/networks``, written once
for both libraries; all of them are measured unless some are named. Data lies on the device already. Weights
and batches are the same everywhere, and so is the loss of the first step, to 1e-4.

Each figure is a median over the repeats. In each of these, every device takes its turn, beginning with
another one each time, after a pause: whoever comes behind the CPU's threads, which spin for a while, would
take longer. A turn of a short step is several of them. The last lines are the geometric mean and the worst of
the ratios to PyTorch, where less than 1 is faster than PyTorch.

``--threads`` holds dl4all, NumPy's BLAS and PyTorch to so many threads; without it, PyTorch uses as many as
there are cores, or as OMP_NUM_THREADS says, which holds for BLAS too. ``--cpu-time`` measures the processor
time of all threads instead of the clock, and takes the least in place of the median: where other programs
share the machine, only that, with one thread, can be compared. ``--compiled`` adds a column for each device
where the step is compiled by ``dl.compile``; why one is not is said.

With ``--tinygrad``, tinygrad's WEBGPU device joins in for mlp, cnn, resnet18 and gpt, over Vulkan like
dl4all: a process in the environment of ``lab/peers``, its whole step captured by TinyJit, no kernel
search.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.graph.run.compiled import CompileWarning

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import threads
from benchmarks.networks import CASES
from benchmarks.networks.case import Array, Batch, Step
from benchmarks.turns import in_turn
from lab.peers import tinygrad_steps
from lab.peers.child import Child

WARM_UP = 8  # steps that compile kernels, fill pools and are traced
TURN = 10.0  # milliseconds that a turn takes at least, if ten steps take that
TOLERANCE = 1e-4
REFERENCE = "pytorch"
Call = Callable[[], float]


def batch(name: str) -> Batch:
    """The arrays that a case is trained on."""
    return CASES[name].batch(np.random.default_rng(0))


def their_network(name: str) -> tuple[Any, dict[str, Array]]:
    """PyTorch's network, and its weights, with which all begin."""
    torch.manual_seed(0)
    net = CASES[name].network(torch).train()
    return net, {key: value.detach().numpy().copy() for key, value in net.state_dict().items()}


def our_network(name: str, weights: dict[str, Array], device: str) -> Any:
    """dl4all's, with the same weights."""
    net = CASES[name].network(dl).train()
    net.load_state_dict(weights)
    return net.to(device)


def call_of(step: Step, data: tuple[Any, ...]) -> Call:
    """Takes a step and waits for its loss."""
    return lambda: float(step(*data).item())


def steps(name: str, devices: tuple[str, ...], compiled: bool) -> tuple[dict[str, Call], dict[str, Array]]:
    """A function for each device that takes a step, and the weights they all begin with."""
    case, arrays = CASES[name], batch(name)
    net, weights = their_network(name)
    calls = {REFERENCE: call_of(case.training(torch, net), tuple(map(torch.from_numpy, arrays)))}
    for device in devices:
        data = tuple(dl.tensor(array, device=device) for array in arrays)
        calls[device] = call_of(case.training(dl, our_network(name, weights, device)), data)
        if compiled:
            step = case.training(dl, our_network(name, weights, device))
            calls[f"{device} compiled"] = call_of(dl.compile(step), data)
    return calls, weights


def asked(child: Child, name: str, weights: dict[str, Array]) -> Call:
    """A function that has tinygrad take a step; the question and its answer take microseconds."""
    x, y = batch(name)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "start.npz")
        given = x.astype(np.float32 if x.dtype.kind == "f" else np.int32)
        arrays: dict[str, Any] = {**weights, "input": given, "target": y.astype(np.int32)}
        np.savez(file, **arrays)
        child.ask({"do": "prepare", "case": name, "file": file})
    return lambda: float(child.ask({"do": "step"})["loss"])


def warm_up(name: str, calls: dict[str, Call]) -> None:
    """Compare the first losses, and take the steps that are not measured. Leave out what cannot be compiled.

    Raises:
        SystemExit: they do not compute the same.
    """
    expected = calls[REFERENCE]()
    for device, call in list(calls.items()):
        try:
            loss = expected if device == REFERENCE else call()
            for _ in range(WARM_UP):
                call()
        except CompileWarning as problem:
            click.echo(f"{name}: {problem}", err=True)
            del calls[device]
            continue
        if not abs(loss - expected) <= TOLERANCE * abs(expected):
            raise SystemExit(f"{name}: {device} has a loss of {loss}, PyTorch one of {expected}")


def ratios(found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Times over PyTorch's, by device and case."""
    result: dict[str, dict[str, float]] = {}
    for name, times in found.items():
        for device, spent in times.items():
            if device != REFERENCE:
                result.setdefault(device, {})[name] = spent / times[REFERENCE]
    return result


def table(found: dict[str, dict[str, float]], unit: str) -> Table:
    """Times by case and device, their ratios to PyTorch's, and what these amount to."""
    by_device = ratios(found)
    result = Table(title=f"{unit} a step (and times PyTorch's)")
    result.add_column("case", no_wrap=True)
    for device in (REFERENCE, *by_device):
        result.add_column(device, justify="right", no_wrap=True)
    for name, times in found.items():
        cells = [
            f"{times[device]:.2f} ({of[name]:.2f})" if name in of else "-" for device, of in by_device.items()
        ]
        result.add_row(name, f"{times[REFERENCE]:.2f}", *cells, end_section=name == list(found)[-1])
    if by_device:
        means = [statistics.geometric_mean(of.values()) for of in by_device.values()]
        worst = [max(of, key=of.__getitem__) for of in by_device.values()]
        most = [f"{name} {of[name]:.2f}" for name, of in zip(worst, by_device.values(), strict=True)]
        result.add_row("geometric mean", "1", *(f"{mean:.2f}" for mean in means))
        result.add_row("worst", "", *most)
    return result


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), help="All unless given.")
@click.option("--device", "devices", multiple=True, default=("cpu",), show_default=True)
@click.option("--compiled", is_flag=True, help="Measure compiled steps, too.")
@click.option("--tinygrad", "with_tinygrad", is_flag=True, help="Compare with tinygrad, too.")
@click.option("--threads", "count", type=click.IntRange(min=1), help="Of all libraries.")
@click.option("--cpu-time", is_flag=True, help="Processor time instead of the clock.")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    names: tuple[str, ...],
    devices: tuple[str, ...],
    compiled: bool,
    with_tinygrad: bool,
    count: int | None,
    cpu_time: bool,
    repeat: int,
    as_json: bool,
) -> None:
    """Compare training steps of dl4all with PyTorch's."""
    if with_tinygrad and cpu_time:
        raise click.UsageError("tinygrad runs in a process of its own, whose processor time is not measured")
    threads.hold(count)
    warnings.simplefilter("error", CompileWarning)  # what is measured as compiled is compiled
    found = {}
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(Child("tinygrad", module="tinygrad_steps")) if with_tinygrad else None
        for name in names or CASES:
            calls, weights = steps(name, devices, compiled)
            if child is not None and name in tinygrad_steps.NETWORKS:
                calls["tinygrad"] = asked(child, name, weights)
            warm_up(name, calls)
            times = in_turn(calls, repeat, warm_up=0, least=TURN)
            found[name] = {
                device: min(taken.processor) if cpu_time else statistics.median(taken.clock)
                for device, taken in times.items()
            }
    if as_json:
        print(json.dumps(found))
        return
    unit = "ms of processor time" if cpu_time else "ms"
    Console(width=None if sys.stdout.isatty() else 160).print(table(found, unit))


if __name__ == "__main__":
    main()
