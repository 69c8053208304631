"""Elementwise ops and reductions against the device's own copy, in one run.

    python benchmarks/bandwidth.py [--device vulkan:0] [--megabytes 16] [--repeat 20] [--json]

Each op works on float32 tensors of so many megabytes. Its rate is the bytes that it must read and write at
least, over its time; "share" is that over the rate of a copy on the device, timed in turn with it. Times are
medians over the repeats, of which each runs every op once.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.runtime import registry
from dl4all.runtime.backend import Copy, span


def works(device: str, count: int) -> dict[str, tuple[Callable[[], object], int]]:
    """What to time, and how many bytes it moves at least."""
    rng = np.random.default_rng(0)
    a, b = (dl.tensor(rng.uniform(0.5, 2, count).astype(np.float32), device=device) for _ in range(2))
    rows = a.reshape(-1, 1024)
    row = b[:1024].clone()
    mask = a > b
    nbytes = 4 * count
    return {
        "add": (lambda: a + b, 3 * nbytes),
        "add a number": (lambda: a + 1.5, 2 * nbytes),
        "mul": (lambda: a * b, 3 * nbytes),
        "add a row to a matrix": (lambda: rows + row, 2 * nbytes),
        "relu": (lambda: a.relu(), 2 * nbytes),
        "exp": (lambda: a.exp(), 2 * nbytes),
        "tanh": (lambda: a.tanh(), 2 * nbytes),
        "gelu": (lambda: dl.nn.functional.gelu(a), 2 * nbytes),
        "where": (lambda: dl.where(mask, a, b), 3 * nbytes + count),
        "compare": (lambda: a > b, 2 * nbytes + count),
        "transpose": (lambda: rows.T.contiguous(), 2 * nbytes),
        "sum": (lambda: a.sum(), nbytes),
        "sum of rows": (lambda: rows.sum(1), nbytes),
        "sum of columns": (lambda: rows.sum(0), nbytes),
        "max of rows": (lambda: rows.amax(1), nbytes),
        "argmax of rows": (lambda: rows.argmax(1), nbytes),
        "variance of rows": (lambda: rows.var(1), nbytes),
        "dot": (lambda: dl.dot(a, b), 2 * nbytes),
        "softmax of rows": (lambda: rows.softmax(1), 2 * nbytes),
        "layer norm of rows": (lambda: dl.nn.functional.layer_norm(rows, (1024,)), 2 * nbytes),
        "cumsum of rows": (lambda: rows.cumsum(1), 2 * nbytes),
    }


def copying(device: str, count: int) -> Callable[[], object]:
    place = dl.device(device)
    if place.is_host:
        source, target = np.ones(count, np.float32), np.zeros(count, np.float32)
        return lambda: np.copyto(target, source)
    backend = registry.open_device(str(place))
    first, second = (span(backend.allocate(4 * count)) for _ in range(2))

    def copy() -> None:
        backend.stream.copy(Copy(first, second))
        backend.stream.synchronize()

    return copy


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = work()
    dl.synchronize()
    spent = time.perf_counter() - start
    del kept
    return spent


@click.command()
@click.option("--device", default="auto", show_default=True)
@click.option("--megabytes", default=16, show_default=True, help="Of each operand.")
@click.option("--repeat", default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(device: str, megabytes: int, repeat: int, as_json: bool) -> None:
    count = megabytes * 2**20 // 4
    copy, todo = copying(device, count), works(device, count)
    times: dict[str, list[float]] = {name: [] for name in ("copy", *todo)}
    for turn in range(repeat + 3):
        for name, work in (("copy", copy), *((name, work) for name, (work, _) in todo.items())):
            spent = seconds(work)
            if turn >= 3:
                times[name].append(spent)
    rate = {name: nbytes / statistics.median(times[name]) / 1e9 for name, (_, nbytes) in todo.items()}
    copied = 8 * count / statistics.median(times["copy"]) / 1e9
    if as_json:
        print(json.dumps({"device": str(dl.device(device)), "copy_gbs": copied, "gbs": rate}))
        return
    table = Table(title=f"{dl.device(device)}: copies {copied:.1f} GB/s at {megabytes} MB")
    for column in ("op", "ms", "GB/s", "share of a copy"):
        table.add_column(column, justify="left" if column == "op" else "right")
    for name, found in rate.items():
        spent = statistics.median(times[name])
        table.add_row(name, f"{spent * 1e3:.2f}", f"{found:.1f}", f"{100 * found / copied:.0f} %")
    Console().print(table)


if __name__ == "__main__":
    main()
