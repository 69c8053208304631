"""Milliseconds on a device: immediate mode, compiled, and other libraries, in turn in one run.

    python benchmarks/compiled.py [--device vulkan:0] [--case resnet18-b1 --case mlp-step ...] [--repeat 10]

Inference of ResNet-18 at 224x224 with batch 1 and 8 and batch norm folded, from images to scores as arrays of
the host, and four training steps of ``benchmarks/training.py``. Weights and batches are the same everywhere,
and so are the first results, to 1e-4. For each: the median by the clock, which includes waiting for the
device, and the median processor time over all threads, which other programs disturb least; a peer in a
process of its own has none.

Peers run on the same device, in the environments of ``lab/peers``. With ``--ncnn``, ncnn joins in for
inference; its images of a batch go one after the other. With ``--tinygrad``, tinygrad's WEBGPU device joins
in for the steps, its whole step captured by TinyJit. On the CPU, ``benchmarks/resnet18.py``
and ``benchmarks/training.py --compiled`` put PyTorch and ONNX Runtime beside it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.graph.run.compiled import CompileWarning

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import training
from benchmarks.networks import CASES as NETWORKS
from benchmarks.turns import in_turn
from lab.peers import resnet18, tinygrad_steps
from lab.peers.child import Child
from lab.peers.serve import DEVICE_VARIABLE

WARM_UP = 5  # calls, of which the first ones are traced
TOLERANCE = 1e-4
PEERS = {"ncnn": "ncnn_resnet18", "tinygrad": "tinygrad_steps"}  # by way, the module in its environment
Ways = dict[str, Callable[[], Any]]
Children = dict[str, Child]


class Times(NamedTuple):
    """Milliseconds of a call."""

    clock: float
    processor: float | None


def inference(batch: int, device: str, children: Children) -> Ways:
    """ResNet-18 in each way; each returns its scores."""
    dl.manual_seed(0)
    net = dl.models.resnet18().eval().fold_batch_norm().to(device)
    x = np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)
    weights = {name: value.numpy() for name, value in net.state_dict().items()}

    def call(image: dl.Tensor) -> Any:
        with dl.no_grad():
            return net(image)

    compiled = dl.compile(call)
    ways: Ways = {
        "immediate": lambda: call(dl.tensor(x, device=device)).numpy(),
        "compiled": lambda: compiled(dl.tensor(x, device=device)).numpy(),
    }
    if "ncnn" in children:
        ways["ncnn"] = resnet18.asked(children["ncnn"], weights, x)
    return ways


def steps(name: str, device: str, children: Children) -> Ways:
    """A training step in each way, each with a network of its own; each returns its loss."""
    case, weights = NETWORKS[name], training.their_network(name)[1]
    data = tuple(dl.tensor(array, device=device) for array in training.batch(name))
    ways: Ways = {}
    for way in ("immediate", "compiled"):
        step = case.training(dl, training.our_network(name, weights, device))
        ways[way] = training.call_of(dl.compile(step) if way == "compiled" else step, data)
    if "tinygrad" in children:
        ways["tinygrad"] = training.asked(children["tinygrad"], name, weights)
    return ways


CASES: dict[str, Callable[[str, Children], Ways]] = {
    "resnet18-b1": functools.partial(inference, 1),
    "resnet18-b8": functools.partial(inference, 8),
    **{f"{name}-step": functools.partial(steps, name) for name in tinygrad_steps.NETWORKS},
}


def measure(name: str, ways: Ways, repeat: int) -> dict[str, Times]:
    """Medians by way.

    Raises:
        SystemExit: the ways do not compute the same.
    """
    first = {way: np.asarray(call()) for way, call in ways.items()}
    for way, result in first.items():
        error = np.abs(result - first["immediate"]).max()
        if not error <= TOLERANCE * np.abs(first["immediate"]).max():
            raise SystemExit(f"{name}: {way} is off by {error}")
    return {
        way: Times(
            statistics.median(taken.clock), None if way in PEERS else statistics.median(taken.processor)
        )
        for way, taken in in_turn(ways, repeat, warm_up=WARM_UP).items()
    }


@click.command()
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="all by default")
@click.option("--ncnn", "with_ncnn", is_flag=True, help="Measure ncnn's inference, too.")
@click.option("--tinygrad", "with_tinygrad", is_flag=True, help="Measure tinygrad's training steps, too.")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    device: str,
    cases: tuple[str, ...],
    with_ncnn: bool,
    with_tinygrad: bool,
    repeat: int,
    as_json: bool,
) -> None:
    warnings.simplefilter("error", CompileWarning)  # what is measured as compiled is compiled
    hardware = dl.device(device).info.hardware
    peers = [name for name, wanted in (("ncnn", with_ncnn), ("tinygrad", with_tinygrad)) if wanted]
    with contextlib.ExitStack() as stack:
        children = {
            name: stack.enter_context(Child(name, {DEVICE_VARIABLE: hardware}, module=PEERS[name]))
            for name in peers
        }
        found = {name: measure(name, CASES[name](device, children), repeat) for name in cases or CASES}
    if as_json:
        click.echo(json.dumps({name: {w: t._asdict() for w, t in ts.items()} for name, ts in found.items()}))
        return
    table = Table(title=f"ms by the clock (of processor time) on {hardware}")
    ways = ("immediate", "compiled", *peers)
    for heading in ("", *ways, *(f"compiled / {way}" for way in ways if way != "compiled")):
        table.add_column(heading, justify="right")
    for name, times in found.items():
        cells = [_shown(times[way]) if way in times else "" for way in ways]
        others = [way for way in ways if way != "compiled"]
        ratios = [f"{times['compiled'].clock / times[w].clock:.2f}" if w in times else "" for w in others]
        table.add_row(name, *cells, *ratios)
    Console(width=None if sys.stdout.isatty() else 190).print(table)


def _shown(times: Times) -> str:
    return f"{times.clock:.1f}" + ("" if times.processor is None else f" ({times.processor:.1f})")


if __name__ == "__main__":
    main()
