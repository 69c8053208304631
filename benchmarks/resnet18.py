"""ResNet-18 on every device beside PyTorch on the CPU: milliseconds per image, and differences of the logits.

python benchmarks/resnet18.py
"""

from __future__ import annotations

import json
import statistics
import sys
import time
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

from benchmarks import torch_resnet

TORCH = "PyTorch CPU"
SIZES = ((224, 224), (197, 243))
BATCHES = (1, 3)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", "names", multiple=True, metavar="NAME", help="Devices to measure; all unless given."
)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Images at a time.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Timed runs of each."
)
@click.option(
    "--threads", type=click.IntRange(min=1), help="Of PyTorch; as many as it takes by itself unless given."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def benchmark(names: tuple[str, ...], batch: int, repeat: int, threads: int | None, as_json: bool) -> None:
    """Compare ResNet-18 on each device with PyTorch on the CPU.

    Times are of 224 x 224 pictures and, for dl4all, with batch normalisation folded.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    reference = torch_resnet.resnet18()
    places = [dl.device(name) for name in names or all_names()]
    found = {
        "torch_threads": torch.get_num_threads(),
        "batch": batch,
        "milliseconds_per_image": times(reference, places, batch, repeat),
        "largest_relative_difference": {str(place): differences(reference, place) for place in places},
        "hardware": {str(place): place.info.hardware for place in places},
    }
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show(found, repeat)


def all_names() -> list[str]:
    return [name for info in dl.devices() if not info.compiles_only for name in info.names]


def times(
    reference: torch_resnet.ResNet18, places: list[dl.Device], batch: int, repeat: int
) -> dict[str, dict[str, float]]:
    """Median and fastest milliseconds per image. One run of each in turn, so that all meet the same load."""
    x = torch_resnet.images(batch, *SIZES[0])
    runs = {TORCH: torch_run(reference, x)} | {str(place): our_run(reference, place, x) for place in places}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeat + 2):
        for name, step in runs.items():
            start = time.perf_counter()
            step()
            if turn >= 2:  # the first ones compile and fill caches
                seconds[name].append(time.perf_counter() - start)
    return {
        name: {"median": statistics.median(taken) / batch * 1e3, "fastest": min(taken) / batch * 1e3}
        for name, taken in seconds.items()
    }


def torch_run(net: torch_resnet.ResNet18, x: torch.Tensor) -> Callable[[], object]:
    def step() -> object:
        with torch.inference_mode():
            return net(x)

    return step


def our_run(reference: torch_resnet.ResNet18, place: dl.Device, x: torch.Tensor) -> Callable[[], object]:
    net = network(reference, place, fold=True)
    given = dl.from_numpy(x.numpy(), place)

    def step() -> object:
        result = net(given)
        dl.synchronize(place)
        return result

    return step


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


def show(found: dict[str, Any], repeat: int) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(
        "device",
        title=f"ResNet-18, batch {found['batch']}, {repeat} interleaved runs, "
        f"{found['torch_threads']} threads in PyTorch",
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
