"""What Python costs for each op of PyTorch on ``dlall``, on the null device, beside PyTorch's own on the CPU.

    OMP_NUM_THREADS=1 python benchmarks/torch_overhead.py [--repeat 15] [--calls 2000]

Tensors of 64 elements, so that the CPU's ops are nearly all overhead, too; microseconds of processor time a
call, medians of turns in which each is measured once. ``dl4all`` is the same op in dl4all's own API, which
``overhead.py`` sets beside PyTorch's on the CPU.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import dl4all as dl
import dl4all.nn.functional as OF

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.overhead import sample

WARM_UP = 5


def calls(x: Any, y: Any, image: Any, filters: Any, ones: Any) -> dict[str, Callable[[], Any]]:
    """PyTorch's, by name."""
    return {
        "add": lambda: x + y,
        "mul by a number": lambda: x * 0.5,
        "relu": lambda: torch.relu(x),
        "gelu": lambda: F.gelu(x),
        "add_": lambda: x.add_(y),
        "sum": lambda: x.sum(),
        "softmax": lambda: torch.softmax(x, -1),
        "matmul": lambda: x @ y,
        "layer_norm": lambda: F.layer_norm(x, (8,)),
        "conv2d": lambda: F.conv2d(image, filters),
        "batch_norm": lambda: F.batch_norm(image, ones, ones, training=False),
        "transposed copy": lambda: x.t().contiguous(),
        "view": lambda: x.view(64),
    }


def own_calls(x: Any, y: Any, image: Any, filters: Any, ones: Any) -> dict[str, Callable[[], Any]]:
    """dl4all's, by the same names."""
    return {
        "add": lambda: x + y,
        "mul by a number": lambda: x * 0.5,
        "relu": lambda: dl.relu(x),
        "gelu": lambda: OF.gelu(x),
        "add_": lambda: x.add_(y),
        "sum": lambda: x.sum(),
        "softmax": lambda: OF.softmax(x, -1),
        "matmul": lambda: x @ y,
        "layer_norm": lambda: OF.layer_norm(x, (8,)),
        "conv2d": lambda: OF.conv2d(image, filters),
        "batch_norm": lambda: OF.batch_norm(image, ones, ones),
        "transposed copy": lambda: x.t().contiguous(),
        "view": lambda: x.reshape(64),
    }


@click.command()
@click.option("--repeat", default=15, show_default=True)
@click.option("--calls", "count", default=2000, show_default=True)
def main(repeat: int, count: int) -> None:
    torch.set_num_threads(1)
    dl.set_default_device("null")
    import dl4all.torch

    dl4all.torch.set_fallback("error")
    shapes = ((8, 8), (8, 8), (1, 4, 4, 4), (4, 4, 1, 1), (4,))
    host = [torch.rand(shape) for shape in shapes]
    todo = {
        "CPU": calls(*host),
        "dlall": calls(*(one.to("dlall") for one in host)),
        "dl4all": own_calls(*(dl.tensor(one.numpy()) for one in host)),
    }
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(repeat + 1):
        for library, by_name in todo.items():
            for name, call in by_name.items():
                spent = sample(call, count if turn else WARM_UP)
                if turn:
                    found.setdefault((name, library), []).append(spent)
    table = Table(title="us a call")
    for heading in ("op", "PyTorch, CPU", "PyTorch, dlall on null", "dl4all on null"):
        table.add_column(heading, justify="right")
    for name in todo["CPU"]:
        table.add_row(name, *(f"{statistics.median(found[name, library]):.2f}" for library in todo))
    Console().print(table)


if __name__ == "__main__":
    main()
