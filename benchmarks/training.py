"""Milliseconds of a training step: dl4all on each device, PyTorch on the CPU, tinygrad, in turn in one run.

    python benchmarks/training.py [--case mlp --case cnn ...] [--device cpu ...] [--repeat 10] [--json]

A step is: forget the gradients, forward, cross entropy, backward, SGD with momentum, and the loss as a Python
number, which waits for the device. Data lies on the device already. Weights and batches are the same
everywhere, and so is the loss of the first step, to 1e-4. Medians over the repeats, each of which takes the
devices in another order, with a pause between them: whoever comes after the CPU's threads, which spin for a
while, would take longer each time. PyTorch uses as many threads as there are cores, or as OMP_NUM_THREADS
says, which holds for NumPy's OpenBLAS too.

With ``--tinygrad``, tinygrad's WEBGPU device joins in, over Vulkan like dl4all: a process in the environment
of ``benchmarks/peers``, its whole step captured by TinyJit, no kernel search.

Cases: an MLP 784-256-128-10 with batch 128; a CNN conv16-pool-conv32-pool-fc on 28x28 with batch 64;
ResNet-18 with batch 8 at 224x224; a GPT of 4 blocks, 4 heads and 128 features with 16 texts of 64 characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.peers.child import Child
from benchmarks.torch_gpt import GPT
from benchmarks.torch_resnet import ResNet18

WARM_UP = 3  # steps that compile kernels and fill pools
PAUSE = 0.04  # seconds between two turns: the waiting threads of an OpenMP or BLAS pool spin for about 30 ms
CLASSES, CHARACTERS = 10, 96
Array = npt.NDArray[Any]


class Case(NamedTuple):
    """Twins with the same names of weights, and the shape of a batch: of floats, or of characters."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    shape: tuple[int, ...]
    text: bool = False

    def batch(self) -> tuple[Array, Array]:
        """Inputs and labels, for a text one for each character."""
        rng = np.random.default_rng(0)
        if self.text:
            return rng.integers(0, CHARACTERS, self.shape), rng.integers(0, CHARACTERS, self.shape).reshape(
                -1
            )
        x = rng.standard_normal(self.shape).astype(np.float32)
        return x, rng.integers(0, CLASSES, self.shape[0])


def mlp(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


class OurGPT(dl.models.GPT):
    """With the scores of all places one below the other."""

    def forward(self, idx: Any) -> Any:
        return super().forward(idx).reshape(-1, CHARACTERS)


CASES = {
    "mlp": Case(lambda: mlp(dl.nn), lambda: mlp(torch.nn), (128, 784)),
    "cnn": Case(lambda: cnn(dl.nn), lambda: cnn(torch.nn), (64, 1, 28, 28)),
    "resnet18": Case(lambda: dl.models.resnet18(CLASSES), lambda: ResNet18(CLASSES), (8, 3, 224, 224)),
    "gpt": Case(
        lambda: OurGPT(CHARACTERS, 64, 4, 4, 128), lambda: GPT(CHARACTERS, 64, 4, 4, 128), (16, 64), text=True
    ),
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


def steps(case: Case, devices: tuple[str, ...]) -> tuple[dict[str, Callable[[], float]], dict[str, Array]]:
    """A function for each device that takes a step, and the weights they all begin with."""
    x, y = case.batch()
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
    return found, weights


def asked(child: Child, name: str, weights: dict[str, Array]) -> Callable[[], float]:
    """A function that has tinygrad take a step; the question and its answer take microseconds."""
    x, y = CASES[name].batch()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "start.npz")
        given = x.astype(np.float32 if x.dtype.kind == "f" else np.int32)
        arrays: dict[str, Any] = {**weights, "input": given, "target": y.astype(np.int32)}
        np.savez(file, **arrays)
        child.ask({"do": "prepare", "case": name, "file": file})
    return lambda: float(child.ask({"do": "step"})["loss"])


def measure(name: str, devices: tuple[str, ...], repeat: int, child: Child | None) -> dict[str, float]:
    """Milliseconds by device."""
    todo, weights = steps(CASES[name], devices)
    if child is not None:
        todo["tinygrad"] = asked(child, name, weights)
    first = {device: step() for device, step in todo.items()}
    for device, loss in first.items():
        if abs(loss - first["pytorch"]) > 1e-4 * abs(first["pytorch"]):
            raise SystemExit(f"{device} has a loss of {loss}, PyTorch one of {first['pytorch']}")
    times: dict[str, list[float]] = {device: [] for device in todo}
    order, rng = list(todo), random.Random(0)
    for turn in range(WARM_UP + repeat):
        rng.shuffle(order)
        for device in order:
            step = todo[device]
            time.sleep(PAUSE)
            start = time.perf_counter()
            step()
            if turn >= WARM_UP:
                times[device].append(time.perf_counter() - start)
    return {device: 1e3 * statistics.median(spent) for device, spent in times.items()}


@click.command()
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), default=("mlp", "cnn"))
@click.option(
    "--device", "devices", multiple=True, default=("cpu", "vulkan:0", "kompute:0"), show_default=True
)
@click.option("--tinygrad", "with_tinygrad", is_flag=True, help="Compare with tinygrad, too.")
@click.option("--repeat", default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    names: tuple[str, ...], devices: tuple[str, ...], with_tinygrad: bool, repeat: int, as_json: bool
) -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(Child("tinygrad", module="tinygrad_steps")) if with_tinygrad else None
        found = {name: measure(name, devices, repeat, child) for name in names}
    if as_json:
        print(json.dumps(found))
        return
    table = Table(title="ms a step (and times PyTorch's)")
    table.add_column("case")
    for name in next(iter(found.values())):
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
