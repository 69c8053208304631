"""Training steps of small networks in immediate mode, as compiled kernels, and as programs of op codes.

    python benchmarks/op_codes.py [--device vulkan:0] [--repeat 15]

Every repeat runs each form once, in turn. Times are the least processor time of a step over all threads, with
and without what Python does for it: the second is that of the recording alone, replayed. "chosen" says which
form ``dl.compile(step, mode="reduce-overhead")`` takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.graph.op_codes import choice
from dl4all.graph.run.compiled import Compiled
from dl4all.graph.run.executable import Executable
from dl4all.nn import functional as F

NETWORKS = {  # batch, inputs, hidden units, outputs
    "XOR, one sample": (1, 2, 4, 1),
    "XOR, all four": (4, 2, 8, 1),
    "16 units": (8, 8, 16, 4),
    "digits": (8, 64, 32, 10),
}
STEPS = 20
WARM_UP = 4  # calls: two are traced, the third is replayed, and the fourth records the commands


def training(device: dl.Device, sizes: tuple[int, int, int, int]) -> tuple[Any, list[dl.Tensor]]:
    """A step of a network with one hidden layer, and its tensors."""
    batch, inputs, hidden, outputs = sizes
    dl.manual_seed(0)
    model = dl.nn.Sequential(dl.nn.Linear(inputs, hidden), dl.nn.Tanh(), dl.nn.Linear(hidden, outputs))
    optimizer = dl.optim.SGD(model.to(device).parameters(), lr=0.1)

    def step(x: dl.Tensor, y: dl.Tensor) -> dl.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    return step, [dl.tensor(rng.random((batch, n), np.float32), device=device) for n in (inputs, outputs)]


def processor_time(device: dl.Device, function: Callable[[], Any]) -> float:
    """Microseconds of a call."""
    start = time.process_time()
    for _ in range(STEPS):
        function()
    device.synchronize()
    return (time.process_time() - start) / STEPS * 1e6


def replay(device: dl.Device, compiled: Compiled[..., Any]) -> Callable[[], None]:
    """What replays the recording of a compiled step."""
    [[found]] = compiled.specializations.values()
    executable = found.executable
    recordings = executable.recordings if isinstance(executable, Executable) else []
    if len(recordings) != 1:
        raise click.ClickException(f"{device} does not replay recordings")
    return lambda: device.recordings.replay(recordings[0], {})


@click.command()
@click.option("--device", default="vulkan:0")
@click.option("--repeat", default=15)
def main(device: str, repeat: int) -> None:
    opened = dl.device(device)
    heads = ("network", "immediate", "compiled", "programs", "compiled, replay", "programs, replay", "ratio")
    table = Table(*heads, "dispatches", "chosen", title=f"{opened.info.hardware}: microseconds of a step")
    for name, sizes in NETWORKS.items():
        forms: list[Callable[[], Any]] = []
        dispatches = []
        step, tensors = training(opened, sizes)
        forms.append(lambda step=step, tensors=tensors: step(*tensors))  # type: ignore[misc]
        replays = []
        for faster in (False, True):
            step, tensors = training(opened, sizes)
            compiled = dl.compile(step, mode="reduce-overhead")
            with mock.patch.multiple(
                choice, is_measured=lambda _: True, is_worthwhile=lambda *_, faster=faster: faster
            ):
                for _ in range(WARM_UP):
                    compiled(*tensors)
            forms.append(lambda step=compiled, tensors=tensors: step(*tensors))  # type: ignore[misc]
            replays.append(replay(opened, compiled))
            [[found]] = compiled.specializations.values()
            dispatches.append(found.executable.dispatches)
        forms += replays
        least = [min(processor_time(opened, form) for _ in range(2)) for form in forms]
        for _ in range(repeat):
            least = [min(best, processor_time(opened, f)) for best, f in zip(least, forms, strict=True)]
        step, tensors = training(opened, sizes)
        compiled = dl.compile(step, mode="reduce-overhead")
        for _ in range(WARM_UP):
            compiled(*tensors)
        [[found]] = compiled.specializations.values()
        chosen = "programs" if any(node.name == "op codes" for node in found.graph.nodes) else "kernels"
        times = [f"{value:.0f}" for value in least]
        ratio = f"{least[4] / least[3]:.2f}"
        table.add_row(name, *times, ratio, " / ".join(map(str, dispatches)), chosen)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
