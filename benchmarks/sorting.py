"""Sorting and compaction: a device's kernels and the host's NumPy, in one run.

    python benchmarks/sorting.py [--device vulkan:0] [--repeat 9]

The host downloads the elements and uploads what it finds, as for a device without kernels. Every repeat runs
each way once, in turn; times are medians and end when the device has finished. The results of both ways are
compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.ops.sorting import placement
from dl4all.scheduler import fallback

WARM_UP = 2
CASES: tuple[tuple[str, tuple[int, ...], Callable[[Any], Any]], ...] = (
    ("sort", (64, 10), lambda x: x.sort()),
    ("sort", (64, 1000), lambda x: x.sort()),
    ("sort", (1_000_000,), lambda x: x.sort()),
    ("argsort", (16, 65536), lambda x: x.argsort()),
    ("topk 5", (64, 10), lambda x: x.topk(5)),
    ("topk 5", (64, 1000), lambda x: x.topk(5)),
    ("topk 40", (8, 50257), lambda x: x.topk(40)),
    ("median", (1_000_000,), lambda x: x.median()),
    ("unique", (1_000_000,), lambda x: x.unique()),
    ("nonzero", (1_000_000,), lambda x: x.nonzero()),
    ("masked_select", (1_000_000,), lambda x: x.masked_select(x > 1)),
)


def parts(result: Any) -> list[Any]:
    return [part.numpy() for part in (result if isinstance(result, tuple) else (result,))]


@click.command()
@click.option("--device", default="auto", show_default=True)
@click.option("--repeat", default=9, show_default=True)
def main(device: str, repeat: int) -> None:
    place, rng = dl.device(device), np.random.default_rng(0)
    table = Table(title=f"ms ({place}, {place.info.hardware})")
    for name in ("", "elements", "kernels", "host", "host / kernels"):
        table.add_column(name, justify="left" if not name else "right")
    for name, shape, work in CASES:
        x = dl.tensor((100 * rng.standard_normal(shape)).round().astype(np.float32), device=place)
        times: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(repeat + WARM_UP):
            results = []
            for on_host, spent in times.items():
                with (
                    fallback.policy("silent"),
                    patch.object(placement, "prefers_host", return_value=on_host),
                ):
                    dl.synchronize()
                    start = time.perf_counter()
                    results.append(work(x))
                    dl.synchronize()
                if turn >= WARM_UP:
                    spent.append(time.perf_counter() - start)
            for one, other in zip(*map(parts, results), strict=True):
                np.testing.assert_array_equal(one, other)
        ours, theirs = (statistics.median(spent) * 1e3 for spent in times.values())
        table.add_row(name, "x".join(map(str, shape)), f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
