"""A training step of PyTorch modules on ``dlall`` beside the same step in dl4all's own API, in one run.

    OMP_NUM_THREADS=1 python benchmarks/torch_training.py [--case resnet18 ...] [--device vulkan:0]

Cases, weights, batches and what a step is are those of ``training.py``, which sets dl4all beside PyTorch on
the CPU; four of them are measured unless some are named. Both libraries drive the same device, and the losses
of the first step agree to 1e-4. Processor time of the whole process, so that other programs matter less: on a
software driver the device's work is in it, on the null device there is none, and only the host's part is
left.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.networks import CASES
from benchmarks.training import TOLERANCE, Call, batch, call_of, our_network, their_network
from benchmarks.turns import in_turn

USUAL = ("mlp", "cnn", "resnet18", "gpt")
WARM_UP = 4  # steps that compile kernels, fill pools and make launch plans


def steps(name: str, device: str) -> dict[str, Call]:
    """A function for each library that takes a step on the device."""
    case, arrays = CASES[name], batch(name)
    theirs, weights = their_network(name)
    own_data = tuple(dl.tensor(array, device=device) for array in arrays)
    data = tuple(torch.from_numpy(array).to("dlall") for array in arrays)
    return {
        "dl4all": call_of(case.training(dl, our_network(name, weights, device)), own_data),
        "dlall": call_of(case.training(torch, theirs.to("dlall")), data),
    }


def measure(name: str, device: str, repeat: int) -> dict[str, float]:
    """Milliseconds by library: medians."""
    todo = steps(name, device)
    losses = {library: step() for library, step in todo.items()}
    if device != "null" and abs(losses["dlall"] - losses["dl4all"]) > TOLERANCE * abs(losses["dl4all"]):
        raise SystemExit(f"{name}: the losses differ, {losses}")
    times = in_turn(todo, repeat, warm_up=WARM_UP)
    return {library: statistics.median(taken.processor) for library, taken in times.items()}


@click.command()
@click.option(
    "--case",
    "names",
    multiple=True,
    type=click.Choice(list(CASES)),
    default=USUAL,
)
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
