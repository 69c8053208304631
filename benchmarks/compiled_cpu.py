"""Milliseconds on the CPU: immediate mode, compiled, PyTorch eager, and ONNX Runtime, in turn in one run.

    python benchmarks/compiled_cpu.py [--case resnet18-b1 --case mlp ...] [--repeat 10] [--json]

Inference of ResNet-18 at 224x224 with batch 1 and 8, and the training steps of ``benchmarks/training.py``
with the loss left where it is. Weights and batches are the same everywhere, and so are the results, to 1e-4.
For each: the median processor time over all threads, which other programs disturb least, and the median by
the clock. OMP_NUM_THREADS says how many threads NumPy's OpenBLAS, PyTorch and ONNX Runtime use; with 1 both
figures are the same where the machine is free.

With ``--onnxruntime``, ONNX Runtime joins in for inference: a process in the environment of
``benchmarks/peers``, batch norm folded into the convolutions. Its processor time is not known here, so the
ratio to it is by the clock.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import training
from benchmarks.compiled import Times, Ways, in_turn, step_of
from benchmarks.peers import resnet18
from benchmarks.peers.child import Child
from benchmarks.torch_resnet import ResNet18

WAYS = ("immediate", "compiled", "pytorch")
PEER = "onnxruntime"


def inference(batch: int, child: Child | None) -> Ways:
    """ResNet-18 in each way."""
    x = np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)
    torch.manual_seed(0)
    theirs = ResNet18().eval()
    ours = dl.models.resnet18()
    ours.load_state_dict({name: value.numpy().copy() for name, value in theirs.state_dict().items()})
    ours.to("cpu").eval()
    image, their_image = dl.tensor(x, device="cpu"), torch.from_numpy(x)

    def call(image: dl.Tensor) -> Any:
        with dl.no_grad():
            return ours(image)

    def their_call() -> Any:
        with torch.no_grad():
            return theirs(their_image)

    compiled = dl.compile(call)
    ways: Ways = {
        "immediate": lambda: call(image),
        "compiled": lambda: compiled(image),
        "pytorch": their_call,
    }
    if child is not None:
        folded = dl.models.resnet18()
        folded.load_state_dict(ours.state_dict())
        weights = folded.eval().fold_batch_norm().state_dict()
        ways[PEER] = resnet18.asked(child, {name: value.numpy() for name, value in weights.items()}, x)
    return ways


def steps(name: str, child: Child | None) -> Ways:
    """A training step in each way; each has a model of its own."""
    case = training.CASES[name]
    x, y = case.batch()
    torch.manual_seed(0)
    theirs = case.theirs().train()
    weights = {name: value.detach().numpy().copy() for name, value in theirs.state_dict().items()}
    ways: Ways = {}
    for way in WAYS[:2]:
        net = case.ours().train()
        net.load_state_dict(weights)
        take = step_of(dl, dl.nn.functional, net.to("cpu"))
        take = dl.compile(take) if way == "compiled" else take
        data = dl.tensor(x, device="cpu"), dl.tensor(y, device="cpu")
        ways[way] = functools.partial(take, *data)
    take = step_of(torch, torch.nn.functional, theirs)
    ways["pytorch"] = lambda: take(torch.from_numpy(x), torch.from_numpy(y))
    return ways


CASES: dict[str, Callable[[Child | None], Ways]] = {
    "resnet18-b1": functools.partial(inference, 1),
    "resnet18-b8": functools.partial(inference, 8),
    **{f"{name}-step": functools.partial(steps, name) for name in training.CASES},
}


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="all by default")
@click.option("--onnxruntime", "with_peer", is_flag=True, help="Measure ONNX Runtime's inference, too.")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(cases: tuple[str, ...], with_peer: bool, repeat: int, as_json: bool) -> None:
    warnings.simplefilter("error", UserWarning)  # what is measured as compiled is compiled
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(Child(PEER, module="onnxruntime_resnet18")) if with_peer else None
        found = {
            name: in_turn(name, CASES[name](child), "pytorch", repeat, (PEER,)) for name in cases or CASES
        }
    if as_json:
        click.echo(json.dumps({name: {w: t._asdict() for w, t in ts.items()} for name, ts in found.items()}))
        return
    table = Table(title="ms of processor time (by the clock)")
    ways = (*WAYS, PEER) if with_peer else WAYS
    others = [way for way in ways if way != "compiled"]
    for heading in ("", *ways, *(f"compiled / {way}" for way in others)):
        table.add_column(heading, justify="right")
    for name, times in found.items():
        cells = [_shown(times[way]) if way in times else "" for way in ways]
        ratios = [_ratio(times["compiled"], times[way]) if way in times else "" for way in others]
        table.add_row(name, *cells, *ratios)
    Console(width=None if sys.stdout.isatty() else 190).print(table)


def _shown(times: Times) -> str:
    return ("- " if times.processor is None else f"{times.processor:.1f} ") + f"({times.clock:.1f})"


def _ratio(ours: Times, theirs: Times) -> str:
    if ours.processor is None or theirs.processor is None:
        return f"{ours.clock / theirs.clock:.2f}"
    return f"{ours.processor / theirs.processor:.2f}"


if __name__ == "__main__":
    main()
