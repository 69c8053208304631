"""Ops, forward passes and training steps on a software driver: an older checkout against this one.

    git worktree add ../before REVISION
    python benchmarks/software_driver.py --before ../before [--rounds 3] [--only LSTM] [--json FILE]

Each checkout runs in processes of its own, in turns, with the shaders that it has. What counts is processor
time over all threads: a software driver does its work there, and other jobs change it less than the time that
passes. Without --before, texel buffers are switched off on one side and on on the other.
GALLIUM_OVERRIDE_CPU_CAPS=avx lets llvmpipe write code as for a processor without AVX2 and AVX-512.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parents[1]
REPEATS = 5  # of a case in one process, of which the fastest counts
Case = Callable[[], Any]


def cases(dl: Any, device: str) -> dict[str, Callable[[], Case]]:
    """What is measured, by name: each makes its operands and returns what is to be repeated."""
    F, nn = dl.nn.functional, dl.nn
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return dl.tensor(rng.standard_normal(shape, np.float32), device=device)

    def classes(count: int, *shape: int) -> Any:
        return dl.tensor(rng.integers(0, count, shape), device=device)

    def op(f: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Case]:
        def made() -> Case:
            operands = [normal(*shape) for shape in shapes]
            return lambda: f(*operands)

        return made

    def forward(model: Callable[[], Any], *shape: int) -> Callable[[], Case]:
        def made() -> Case:
            net, x = model().to(device).eval(), normal(*shape)
            return lambda: net(x)

        return made

    def step(
        model: Callable[[], Any], data: Callable[[], Any], count: int, *targets: int
    ) -> Callable[[], Case]:
        def made() -> Case:
            net, x, y = model().to(device), data(), classes(count, *targets)
            optimizer = dl.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

            def once() -> None:
                optimizer.zero_grad()
                F.cross_entropy(net(x).reshape(-1, count), y).backward()
                optimizer.step()

            return once

        return made

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = nn.Embedding(1000, 64), nn.LSTM(64, 128, batch_first=True)
            self.head = nn.Linear(128, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(self.embed(x))[0][:, -1])

    def perceptron() -> Any:
        layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        return nn.Sequential(*layers)

    def small_cnn() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 10),
        )  # fmt: skip

    def encoder() -> Any:
        block = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        return nn.Sequential(nn.Embedding(500, 128), block, nn.Linear(128, 500))

    n, square = (1 << 22,), (1024, 1024)
    return {
        "add": op(lambda a, b: a + b, n, n),
        "relu": op(dl.relu, n),
        "gelu": op(F.gelu, n),
        "add a row": op(lambda a, b: a + b[0], square, square),
        "transpose": op(lambda a: a.t().contiguous(), square),
        "sum": op(lambda a: a.sum(), n),
        "sum of rows": op(lambda a: a.sum(1), square),
        "sum of columns": op(lambda a: a.sum(0), square),
        "softmax": op(lambda a: F.softmax(a, -1), square),
        "layer norm": op(lambda a: F.layer_norm(a, (1024,)), square),
        "product 512": op(lambda a, b: a @ b, (512, 512), (512, 512)),
        "product 1024": op(lambda a, b: a @ b, square, square),
        "product 129x1000x77": op(lambda a, b: a @ b, (129, 1000), (1000, 77)),
        "matrix by vector": op(lambda a, b: a @ b[0], square, square),
        "row by vocabulary": op(F.linear, (1, 384), (50257, 384)),
        "4 rows by layer": op(F.linear, (4, 4096), (4096, 4096)),
        "row by layer": op(F.linear, (1, 4096), (4096, 4096)),
        "row by odd layer": op(F.linear, (1, 1021), (999, 1021)),
        "conv 3x3": op(lambda x, w: F.conv2d(x, w, padding=1), (1, 64, 56, 56), (64, 64, 3, 3)),
        "conv 7x7 stride 2": op(
            lambda x, w: F.conv2d(x, w, stride=2, padding=3), (1, 3, 224, 224), (64, 3, 7, 7)
        ),
        "conv 1x1": op(F.conv2d, (8, 64, 56, 56), (128, 64, 1, 1)),
        "depthwise 3x3": op(
            lambda x, w: F.conv2d(x, w, padding=1, groups=128), (8, 128, 28, 28), (128, 1, 3, 3)
        ),
        "max pool": op(lambda x: F.max_pool2d(x, 2), (8, 64, 56, 56)),
        "attention": op(F.scaled_dot_product_attention, *[(2, 4, 256, 64)] * 3),
        "ResNet-18, 1 image": forward(dl.models.resnet18, 1, 3, 224, 224),
        "perceptron step": step(perceptron, lambda: normal(128, 784), 10, 128),
        "CNN step": step(small_cnn, lambda: normal(32, 1, 28, 28), 10, 32),
        "LSTM step": step(Classifier, lambda: classes(1000, 24, 30), 5, 24),
        "transformer step": step(encoder, lambda: classes(500, 8, 64), 500, 512),
    }


def measure(device: str, only: str) -> dict[str, float]:
    """Milliseconds of processor time of each case, in this process."""
    import dl4all as dl

    dl.manual_seed(0)
    opened, found = dl.device(device), {}
    for name, make in cases(dl, device).items():
        if only not in name:
            continue
        once = make()
        times = []
        for _ in range(REPEATS + 1):  # the first builds pipelines
            opened.synchronize()
            start = time.process_time()
            if name.endswith("step"):
                once()
            else:
                with dl.no_grad():
                    once()
            opened.synchronize()
            times.append(time.process_time() - start)
        found[name] = min(times[1:]) * 1e3
    return found


def child(checkout: Path, device: str, only: str, **settings: str) -> dict[str, float]:
    """The same in a process that imports another checkout."""
    command = [sys.executable, str(Path(__file__)), "--child", "--device", device, "--only", only]
    env = {**os.environ, "PYTHONPATH": str(checkout), **settings}
    done = subprocess.run(command, env=env, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@click.command(help=__doc__)
@click.option("--before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--device", default="vulkan:0")
@click.option("--rounds", default=3)
@click.option("--only", default="", help="Cases whose name has this in it.")
@click.option("--json", "out", type=click.Path(path_type=Path))
@click.option("--child", "is_child", is_flag=True, hidden=True)
def main(before: Path | None, device: str, rounds: int, only: str, out: Path | None, is_child: bool) -> None:
    if is_child:
        print(json.dumps(measure(device, only)))
        return
    old: list[dict[str, float]] = []
    new: list[dict[str, float]] = []
    for _ in range(rounds):
        if before is None:
            old.append(child(HERE, device, only, DL4ALL_TEXEL_BUFFERS="0"))
            new.append(child(HERE, device, only, DL4ALL_TEXEL_BUFFERS="1"))
        else:
            old.append(child(before.resolve(), device, only))
            new.append(child(HERE, device, only))
    table = Table("case", "before, ms", "now, ms", "times faster")
    result = {}
    for name in new[0]:
        was, now = (statistics.median(run[name] for run in runs) for runs in (old, new))
        result[name] = {"before": was, "now": now}
        table.add_row(name, f"{was:.2f}", f"{now:.2f}", f"{was / now:.2f}")
    Console().print(table)
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
