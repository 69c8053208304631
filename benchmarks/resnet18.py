"""ResNet-18 on every device beside PyTorch on the CPU: milliseconds per image, and differences of the logits.

    python benchmarks/resnet18.py [--device cpu ...] [--batch 8] [--compiled] [--onnxruntime] [--no-fold]
                                  [--threads 1] [--cpu-time] [--repeat 10] [--json]

Times are of 224 x 224 pictures that lie on the device. Batch normalisation is folded into the convolutions of
dl4all and ONNX Runtime, unless ``--no-fold`` leaves dl4all's as it is, like PyTorch's. ``--compiled`` adds a
line for each device where the network is compiled by ``dl.compile``.

``--threads`` holds all libraries to so many threads; without it, each uses as many as it takes by itself, or
as OMP_NUM_THREADS says. ``--cpu-time`` measures the processor time of all threads instead of the clock: where
other programs share the machine, only that, with one thread, can be compared.

With ``--onnxruntime``, ONNX Runtime joins in: in this process where it can be imported (``pip install
onnxruntime onnx``), otherwise in the environment of ``lab/peers``, where its processor time is not
known."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import threads, torch_resnet
from benchmarks.turns import in_turn
from lab.peers import resnet18
from lab.peers.child import Child

TORCH, PEER = "PyTorch CPU", "ONNX Runtime"
SIZES = ((224, 224), (197, 243))
BATCHES = (1, 3)
WARM_UP = 4  # runs that compile kernels, fill caches and are traced
Run = Callable[[], object]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", "names", multiple=True, metavar="NAME", help="Devices to measure; all unless given."
)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Images at a time.")
@click.option("--compiled", is_flag=True, help="Measure compiled networks, too.")
@click.option("--onnxruntime", "with_peer", is_flag=True, help="Measure ONNX Runtime, too.")
@click.option("--fold/--no-fold", default=True, show_default=True, help="Batch normalisation of dl4all.")
@click.option("--threads", "count", type=click.IntRange(min=1), help="Of all libraries.")
@click.option("--cpu-time", is_flag=True, help="Processor time instead of the clock.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Timed runs of each."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def benchmark(
    names: tuple[str, ...],
    batch: int,
    compiled: bool,
    with_peer: bool,
    fold: bool,
    count: int | None,
    cpu_time: bool,
    repeat: int,
    as_json: bool,
) -> None:
    """Compare ResNet-18 on each device with PyTorch on the CPU."""
    if count is not None:
        threads.hold(count)
    reference = torch_resnet.resnet18()
    places = [dl.device(name) for name in names or all_names()]
    x = torch_resnet.images(batch, *SIZES[0])
    with contextlib.ExitStack() as stack:
        runs = {TORCH: torch_run(reference, x)}
        for place in places:
            runs |= our_runs(network(reference, place, fold=fold), place, x, compiled)
        if with_peer:
            runs[PEER] = peer_run(stack, reference, x, cpu_time)
        times = in_turn(runs, repeat, warm_up=WARM_UP)
    found = {
        "torch_threads": torch.get_num_threads(),
        "batch": batch,
        "milliseconds_per_image": {
            name: {"median": statistics.median(spent) / batch, "fastest": min(spent) / batch}
            for name, taken in times.items()
            for spent in (taken.processor if cpu_time else taken.clock,)
        },
        "largest_relative_difference": {str(place): differences(reference, place) for place in places},
        "hardware": {str(place): place.info.hardware for place in places},
    }
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(found, repeat, "processor time" if cpu_time else "the clock")


def all_names() -> list[str]:
    return [name for info in dl.devices() if not info.compiles_only for name in info.names]


def torch_run(net: torch_resnet.ResNet18, x: torch.Tensor) -> Run:
    def step() -> object:
        with torch.inference_mode():
            return net(x)

    return step


def our_runs(net: dl.models.ResNet, place: dl.Device, x: torch.Tensor, compiled: bool) -> dict[str, Run]:
    """In immediate mode and, if asked for, compiled."""
    given = dl.from_numpy(x.numpy(), place)

    def run_of(call: Callable[[Any], Any]) -> Run:
        def step() -> object:
            with dl.no_grad():
                result = call(given)
            dl.synchronize(place)
            return result

        return step

    runs = {str(place): run_of(net)}
    if compiled:
        runs[f"{place} compiled"] = run_of(dl.compile(net))
    return runs


def peer_run(
    stack: contextlib.ExitStack, reference: torch_resnet.ResNet18, x: torch.Tensor, cpu_time: bool
) -> Run:
    """ONNX Runtime's.

    Raises:
        click.UsageError: its processor time is asked for, and it cannot be imported.
    """
    folded = network(reference, dl.device("cpu"), fold=True)
    weights = {name: value.numpy() for name, value in folded.state_dict().items()}
    if all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnx")):
        peer = importlib.import_module("lab.peers.onnxruntime_resnet18")
        prepared: Run = peer.prepare(weights, x.numpy())
        return prepared
    if cpu_time:
        raise click.UsageError("--cpu-time --onnxruntime: install onnxruntime and onnx beside dl4all")
    child = stack.enter_context(Child("onnxruntime", module="onnxruntime_resnet18"))
    return resnet18.asked(child, weights, x.numpy())


def network(reference: torch_resnet.ResNet18, place: dl.Device, *, fold: bool) -> dl.models.ResNet:
    """dl4all's network with the reference's weights, on a device."""
    net = dl.models.resnet18().eval()
    net.load_state_dict({name: tensor.numpy() for name, tensor in reference.state_dict().items()})
    return (net.fold_batch_norm() if fold else net).to(place)


def differences(reference: torch_resnet.ResNet18, place: dl.Device) -> dict[str, float]:
    """The largest difference of a logit from PyTorch's, relative to the largest logit, for each input."""
    found: dict[str, float] = {}
    for fold in (False, True):
        net = network(reference, place, fold=fold)
        for height, width in SIZES:
            for batch in BATCHES:
                x = torch_resnet.images(batch, height, width)
                with torch.inference_mode():
                    expected = reference(x).numpy()
                got = net(dl.from_numpy(x.numpy(), place)).numpy()
                name = f"{batch}x3x{height}x{width}{' folded' if fold else ''}"
                found[name] = float(abs(got - expected).max() / abs(expected).max())
    return found


def show(found: dict[str, Any], repeat: int, measure: str) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(
        "device",
        title=f"ResNet-18, batch {found['batch']}, {repeat} interleaved runs, "
        f"{found['torch_threads']} threads in PyTorch, by {measure}",
    )
    for column in ("median ms per image", "fastest", "PyTorch's time / this"):
        table.add_column(column, justify="right")
    baseline = found["milliseconds_per_image"][TORCH]["median"]
    for name, taken in found["milliseconds_per_image"].items():
        table.add_row(
            name, f"{taken['median']:.1f}", f"{taken['fastest']:.1f}", f"{baseline / taken['median']:.2f}"
        )
    console.print(table)

    by_device = found["largest_relative_difference"]
    table = Table("input", title="Largest difference from PyTorch's logits, relative to the largest logit")
    for name in by_device:
        table.add_column(name, justify="right")
    for case in next(iter(by_device.values()), {}):
        table.add_row(case, *(f"{values[case]:.1e}" for values in by_device.values()))
    console.print(table)


if __name__ == "__main__":
    run(benchmark, "resnet18.py")
