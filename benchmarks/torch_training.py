"""A training step of PyTorch modules on ``dlall`` beside the same step in dl4all's own API, in one run.

    OMP_NUM_THREADS=1 python benchmarks/torch_training.py [--case resnet18 ...] [--device vulkan:0]

Cases, weights, batches and what a step is are those of ``training.py``; both libraries drive the same device,
and the losses of the first step agree to 1e-4. Processor time of the whole process, so that other programs
matter less: on a software driver the device's work is in it, on the null device there is none, and only the
host's part is left.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.training import CASES, step_of

WARM_UP = 4  # steps that compile kernels, fill pools and make launch plans


def steps(name: str, device: str) -> dict[str, Callable[[], float]]:
    """A function for each library that takes a step on the device."""
    case = CASES[name]
    x, y = case.batch()
    torch.manual_seed(0)
    theirs = case.theirs().train()
    ours = case.ours().train()
    ours.load_state_dict({name: value.detach().numpy().copy() for name, value in theirs.state_dict().items()})
    data = torch.from_numpy(x).to("dlall"), torch.from_numpy(y).to("dlall")
    own_data = dl.tensor(x, device=device), dl.tensor(y, device=device)
    return {
        "dl4all": step_of(dl, dl.nn.functional, ours.to(device), *own_data),
        "dlall": step_of(torch, torch.nn.functional, theirs.to("dlall"), *data),
    }


def measure(name: str, device: str, repeat: int) -> dict[str, float]:
    """Milliseconds by library: medians, each turn beginning with the other one."""
    todo = steps(name, device)
    losses = {library: step() for library, step in todo.items()}
    if device != "null" and abs(losses["dlall"] - losses["dl4all"]) > 1e-4 * abs(losses["dl4all"]):
        raise SystemExit(f"{name}: the losses differ, {losses}")
    times: dict[str, list[float]] = {library: [] for library in todo}
    order = list(todo)
    for turn in range(WARM_UP + repeat):
        order.reverse()
        for library in order:
            start = time.process_time()
            todo[library]()
            if turn >= WARM_UP:
                times[library].append(time.process_time() - start)
    return {library: 1e3 * statistics.median(spent) for library, spent in times.items()}


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), default=tuple(CASES))
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--repeat", default=9, show_default=True)
def main(names: tuple[str, ...], device: str, repeat: int) -> None:
    torch.set_num_threads(1)
    dl.set_default_device(device)
    import dl4all.torch  # takes the default device for dlall

    dl4all.torch.set_fallback("silent")
    table = Table(title=f"ms of processor time a step, {device}")
    for heading in ("case", "dl4all", "dlall", "dlall / dl4all"):
        table.add_column(heading, justify="right")
    for name in names:
        found = measure(name, device, repeat)
        ratio = found["dlall"] / found["dl4all"]
        table.add_row(name, f"{found['dl4all']:.2f}", f"{found['dlall']:.2f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
