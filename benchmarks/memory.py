"""Peak memory of training ResNet-18, beside the least that its tensors need and beside PyTorch on the CPU.

    python benchmarks/memory.py [--device NAME] [--batch 8] [--size 224] [--steps 6] [--json]

For each step: the most that tensors held at one time (``peak``, which no allocator can do without), what was
taken from the driver at most (``reserved``), and their ratio. The first steps are told apart from the last
one: blocks are put together when a step has shown what is needed. ``--device null:0`` computes nothing and
asks for the same memory as a GPU, in seconds; a software driver takes minutes for a step.

PyTorch's figure is by how much its process grew in two steps of the same network, with the parameters.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all import nn
from dl4all.cli.run import run

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.training_traces import null_device

CLASSES = 1000
TORCH = """
import resource, sys
import psutil, torch
sys.path.insert(0, {root!r})
from benchmarks.torch_resnet import ResNet18
before = psutil.Process().memory_info().rss
net = ResNet18().train()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, target = torch.randn({batch}, 3, {size}, {size}), torch.randint(0, {classes}, ({batch},))
for _ in range(2):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), target).backward()
    optimizer.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)
"""


def train(place: dl.Device, batch: int, size: int, steps: int) -> list[dict[str, float]]:
    """Peak, reserved bytes, their ratio and the driver's allocations of each step of a training loop."""
    net = dl.models.resnet18(num_classes=CLASSES).to(place).train()
    optimizer = dl.optim.SGD(net.parameters(), lr=0.01)
    random = np.random.default_rng(0)
    x = dl.tensor(random.normal(size=(batch, 3, size, size)).astype(np.float32), device=place)
    target = dl.tensor(random.integers(0, CLASSES, batch), device=place)
    found = []
    for _ in range(steps):
        dl.memory.reset_peak(place)
        before = dl.memory.stats(place)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        loss.item()
        after = dl.memory.stats(place)
        found.append(
            {
                "peak": after.peak,
                "reserved": after.peak_reserved,
                "ratio": after.peak_reserved / after.peak,
                "misses": after.misses - before.misses,
            }
        )
    return found


def torch_growth(batch: int, size: int) -> int:
    """Bytes by which a process of PyTorch grows, at its peak."""
    code = TORCH.format(root=str(Path(__file__).parents[1]), batch=batch, size=size, classes=CLASSES)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", "name", default="vulkan:0", show_default=True, help="Where to train.")
@click.option("--batch", type=click.IntRange(min=1), default=8, show_default=True, help="Images at a time.")
@click.option("--size", type=click.IntRange(min=1), default=224, show_default=True, help="Of an image.")
@click.option("--steps", type=click.IntRange(min=1), default=6, show_default=True, help="Of training.")
@click.option("--torch/--no-torch", "with_torch", default=True, help="Whether to measure PyTorch, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def benchmark(name: str, batch: int, size: int, steps: int, with_torch: bool, as_json: bool) -> None:
    """Compare the peak memory of training ResNet-18 with its lower bound and with PyTorch's."""
    place = null_device()[1] if name == "null:0" else dl.device(name)
    each = train(place, batch, size, steps)
    found: dict[str, Any] = {"device": name, "batch": batch, "size": size, **each[-1], "steps": each}
    if with_torch:
        found["torch_growth"] = torch_growth(batch, size)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table("step", title=f"ResNet-18 on {name}, batch {batch}, {size} x {size}")
    for column in ("peak of tensors, MB", "reserved, MB", "ratio", "times the driver was asked"):
        table.add_column(column, justify="right")
    for number, row in enumerate(each, 1):
        sizes = (f"{row['peak'] / 1e6:.1f}", f"{row['reserved'] / 1e6:.1f}")
        table.add_row(str(number), *sizes, f"{row['ratio']:.3f}", str(row["misses"]))
    Console().print(table)
    if with_torch:
        print(f"PyTorch on the CPU grew by {found['torch_growth'] / 1e6:.1f} MB")


if __name__ == "__main__":
    run(benchmark, "memory.py")
