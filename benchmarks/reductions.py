"""Compares kernels that sum products: for a matrix times a vector, and for the dot product of two vectors.

    python benchmarks/reductions.py [--device vulkan:0] [--repeat 20] [--json]

A matrix-vector product is computed with an invocation for each row of the matrix, with a workgroup for each,
and by the tiles of the matrix product. A dot product is added up in shared memory, workgroup by workgroup, or
by atomic additions to one number (compare and swap, as every device can; atomic_dot.comp). Every repeat runs
each of them once, in turn; times are medians. Each result is compared with that of the first method.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.ops.core.kernels.launch import run, shader
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.ops.linalg.dot_product import dot_slices
from dl4all.ops.linalg.matvec import METHODS, matvec_with_method

MATRICES = ((256, 784), (1000, 512), (1536, 384), (4096, 4096), (16, 50000))  # rows and columns
VECTORS = (2**10, 2**16, 2**20, 2**24)
WARM_UP = 3
ATOMIC_DOT = shader(str(Path(__file__).resolve().with_name("atomic_dot.comp")))


class Row(NamedTuple):
    """One problem: milliseconds by way, and how far the results are apart, of the largest one."""

    what: str
    ms: dict[str, float]
    difference: float


def random(device: str, *shape: int) -> dl.Tensor:
    values = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)
    return dl.from_numpy(values, device)


def matrix(device: str, rows: int, columns: int) -> dict[str, tuple[Callable[[], object], dl.Tensor]]:
    """What to run for each way, and where the result lies."""
    x, w = random(device, 1, columns), random(device, rows, columns)

    def work(name: str, out: dl.Tensor) -> Callable[[], object]:
        return lambda: matvec_with_method(METHODS[name], out, x, w, None, 1)

    outs = {name: dl.zeros(1, rows, device=device) for name in METHODS}
    return {name: (work(name, out), out) for name, out in outs.items()}


def vectors(device: str, size: int) -> dict[str, tuple[Callable[[], object], dl.Tensor]]:
    # Positive, so that the sum is as large as its terms' and a relative difference means something.
    x, y = (random(device, size, 1).flatten().abs() for _ in range(2))
    tree, atomic = dl.zeros(1, device=device), dl.zeros(1, device=device)
    kernel: Any = dl.ops.REGISTRY["dot"].kernel
    return {
        "shared memory": (lambda: kernel.run(tree, x, y), tree),
        "atomic": (lambda: atomic_dot(atomic, x, y), atomic),
    }


def atomic_dot(out: TensorBase, input: TensorBase, tensor: TensorBase) -> None:
    """Fill `out` with the dot product by atomic additions, whose order differs from run to run."""
    slices, push = dot_slices(input, tensor)
    out.device.fill(out.storage, 0)
    run(ATOMIC_DOT, (slices, 1, 1), push, input, tensor, out)


def measure(what: str, ways: dict[str, tuple[Callable[[], object], dl.Tensor]], repeat: int) -> Row:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeat + WARM_UP):
        for name, (work, _) in ways.items():
            dl.synchronize()
            start = time.perf_counter()
            work()
            dl.synchronize()
            if turn >= WARM_UP:
                times[name].append(time.perf_counter() - start)
    first, *others = (out.numpy() for _, out in ways.values())
    apart = max(float(np.abs(other - first).max() / np.abs(first).max()) for other in others)
    return Row(what, {name: statistics.median(spent) * 1e3 for name, spent in times.items()}, apart)


@click.command()
@click.option("--device", default="auto", show_default=True)
@click.option("--repeat", default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(device: str, repeat: int, as_json: bool) -> None:
    place = str(dl.device(device))
    if dl.device(place).is_host:
        raise click.UsageError("the cpu has no kernels to compare; name another with --device")
    products = [
        measure(f"{rows} x {columns}", matrix(place, rows, columns), repeat) for rows, columns in MATRICES
    ]
    dots = [measure(f"{size:,}", vectors(place, size), repeat) for size in VECTORS]
    if as_json:
        kinds = {"matvec": products, "dot": dots}
        found = {kind: [row._asdict() for row in rows] for kind, rows in kinds.items()}
        print(json.dumps({"device": place, **found}))
        return
    for title, rows in (("Matrix times vector, ms", products), ("Dot product, ms", dots)):
        table = Table(title=f"{title} ({place})")
        table.add_column("size")
        for name in rows[0].ms:
            table.add_column(name, justify="right")
        table.add_column("results apart", justify="right")
        for row in rows:
            table.add_row(row.what, *(f"{ms:.3f}" for ms in row.ms.values()), f"{row.difference:.0e}")
        Console().print(table)


if __name__ == "__main__":
    main()
