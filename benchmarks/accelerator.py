"""Networks through the accelerator's interpreter, beside the kernels of the same device.

    python benchmarks/accelerator.py [--device vulkan:0] [--repeat 5]

The interpreter runs a program of tiles, instructions and loops in one workgroup; kernels use all of a device.
Times are medians of rounds in which each form has its turn, with the copies of inputs and weights that a
program needs. "simulator" takes each instruction to NumPy.
"""

from __future__ import annotations

import copy
import functools
import sys
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn


def networks() -> dict[str, tuple[Any, tuple[dl.Tensor, ...]]]:
    """Networks of several kinds, and their inputs."""
    rng = np.random.default_rng(0)

    def noise(*shape: int) -> dl.Tensor:
        return dl.tensor(rng.standard_normal(shape, np.float32))

    return {
        "MLP 64-32-10, batch 8": (dl.models.MLP(64, [32], 10), (noise(8, 64),)),
        "LeNet, batch 4": (dl.models.LeNet(10), (noise(4, 1, 28, 28),)),
        "GPT of 2 layers, 64 wide, 32 words": (
            dl.models.GPT(96, 32, 2, 4, 64), (dl.tensor(rng.integers(0, 96, (1, 32))),)
        ),
        "ResNet-18 at 64 x 64": (dl.models.resnet18(num_classes=10), (noise(1, 3, 64, 64),)),
    }  # fmt: skip


def run_kernels(network: Any, inputs: list[dl.Tensor]) -> None:
    network(*inputs).numpy()


@click.command()
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--repeat", default=5, show_default=True)
def main(device: str, repeat: int) -> None:
    place = dl.device(device)
    heads = ("network", "cycles", "instructions run", "interpreter", "kernels", "ratio", "simulator")
    table = Table(*heads, title=f"{place.info.hardware}: milliseconds")
    for name, (network, inputs) in networks().items():
        with dl.no_grad():
            program = dl.accelerator_model().compile(network.eval(), *inputs)
            report = program.report()
            there, copied = [tensor.to(place) for tensor in inputs], copy.deepcopy(network).to(place)
            times = in_turn(
                {
                    "kernels": functools.partial(run_kernels, copied, there),
                    "interpreter": functools.partial(program, *inputs, device=place),
                    "simulator": functools.partial(program, *inputs),
                },
                repeat,
                warm_up=2,
            )
        found = {one: median(taken.clock) for one, taken in times.items()}
        table.add_row(
            name, f"{report.cycles:,}", f"{report.instructions:,}",
            *(f"{found[one]:.1f}" for one in ("interpreter", "kernels")),
            f"{found['interpreter'] / found['kernels']:.1f}", f"{found['simulator']:.1f}",
        )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
