"""Copies and elementwise ops of transposed tensors on the CPU, in turns with PyTorch's.

    python benchmarks/transposed.py [--repeat 9]

Times are medians in ms. Results are contiguous.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

import dl4all as dl
from benchmarks.turns import in_turn

SHAPES = ((256, 256), (1000, 1000), (4096, 1024), (64, 196, 64))
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "copy": lambda x, y: x.mT.contiguous(),
    "x.mT + y": lambda x, y: x.mT + y,
    "relu(x.mT * y)": lambda x, y: (x.mT * y).relu(),
}


@click.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))
@click.option("--repeat", default=9, show_default=True)
def main(repeat: int) -> None:
    table = Table("shape", "call", "dtype", "PyTorch", "dl4all", "ratio")
    for shape in SHAPES:
        for name, call in CALLS.items():
            for dtype in ("float32", "bfloat16"):
                x, y = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(2))
                y = y.mT.contiguous()
                own = [dl.from_dlpack(one).clone() for one in (x, y)]
                calls: dict[str, Callable[[], Any]] = {
                    "PyTorch": functools.partial(call, x, y),
                    "dl4all": functools.partial(call, *own),
                }
                times = in_turn(calls, repeat, warm_up=3, least=1.0)
                theirs, ours = (statistics.median(each.clock) for each in times.values())
                table.add_row(str(shape), name, dtype, f"{theirs:.3f}", f"{ours:.3f}", f"{ours / theirs:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
