"""Copies beside compute: how much of their time is saved.

    python benchmarks/transfers.py [--device vulkan:0] [--megabytes 32] [--products 2] [--repeat 9]

Each round multiplies matrices of 512 x 512 so many times and copies a tensor of so many megabytes, which is
read. "one after the other" waits for the products, then for the copy; "overlapped" copies with
``non_blocking=True`` while the products of the next round run, and reads the copy a round later. Times are
milliseconds a round, the least of all turns. "call" is how long the thread that asks is held, behind
products that still run. "ratio" is what overlapping wins: one after the other over overlapped.

On a software driver both need the same processor cores: ``LP_NUM_THREADS=1`` leaves llvmpipe one of two.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

import dl4all as dl
from dl4all.runtime.vulkan.backend import VulkanBackend

SIZE = 512  # of the matrices
ROUNDS = 4
COLUMNS = ("copy", "products", "one after the other", "overlapped", "call", "call, non_blocking")


def ways(
    x: dl.Tensor, target: dl.Device, computing: dl.Device, products: int
) -> dict[str, Callable[[], float]]:
    """What to time, by column; each returns its seconds."""
    a = dl.tensor(np.full((SIZE, SIZE), 1 / SIZE, np.float32), device=computing)

    def compute() -> None:
        y = a
        for _ in range(products):
            y = y @ a
        computing.record_event()  # the device begins

    def rounds(*, computes: bool, copies: bool, overlap: bool = False) -> float:
        begun, before = time.perf_counter(), None
        for _ in range(ROUNDS):
            if computes:
                compute()
                if not overlap:
                    computing.synchronize()
            if copies:
                moved = x.to(target, non_blocking=overlap)
                now = moved if not overlap else before
                before = moved
                if now is not None:
                    now[:1].numpy()
        if before is not None:
            before[:1].numpy()
        computing.synchronize()
        return (time.perf_counter() - begun) / ROUNDS

    def call(*, non_blocking: bool) -> float:
        compute()
        begun = time.perf_counter()
        moved = x.to(target, non_blocking=non_blocking)
        seconds = time.perf_counter() - begun
        moved[:1].numpy()
        computing.synchronize()
        return seconds

    timed = (
        lambda: rounds(computes=False, copies=True),
        lambda: rounds(computes=True, copies=False),
        lambda: rounds(computes=True, copies=True),
        lambda: rounds(computes=True, copies=True, overlap=True),
        lambda: call(non_blocking=False),
        lambda: call(non_blocking=True),
    )
    return dict(zip(COLUMNS, timed, strict=True))


def measure(timed: dict[str, Callable[[], float]], repeat: int) -> dict[str, float]:
    """The least of all turns, in milliseconds: other jobs only ever add to it."""
    times: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(repeat + 1):
        for name, run in timed.items():
            seconds = run()
            if turn:  # the first one builds pipelines and memory
                times[name].append(1e3 * seconds)
    return {name: min(values) for name, values in times.items()}


@click.command()
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--megabytes", default=32, show_default=True)
@click.option("--products", default=2, show_default=True)
@click.option("--repeat", default=9, show_default=True)
@click.option("--json", "file", type=click.Path(path_type=Path))
def main(device: str, megabytes: int, products: int, repeat: int, file: Path | None) -> None:
    """Copies beside compute: how much of their time is saved."""
    place, cpu, again = dl.device(device), dl.device("cpu"), dl.device(f"{device}#1")
    cases = {"from cpu": (cpu, place), "to cpu": (place, cpu), f"to {again}": (place, again)}
    if device.startswith("vulkan:"):
        staged = dl.Device.of_backend(f"{device} staged", VulkanBackend(place.info.index, zero_copy=False))
        cases |= {"from cpu, staged": (cpu, staged), "to cpu, staged": (staged, cpu)}
    numbers = np.random.default_rng(0).normal(size=megabytes * 250_000).astype(np.float32)
    results = {}
    for name, (source, target) in cases.items():
        computing = next(end for end in (source, target) if not end.is_host)
        results[name] = measure(ways(dl.tensor(numbers, device=source), target, computing, products), repeat)
    table = Table(*("copy of a tensor", *COLUMNS, "ratio"))
    for name, found in results.items():
        ratio = found["one after the other"] / found["overlapped"]
        times = (f"{found[column]:.1f}" for column in COLUMNS)
        table.add_row(name, *times, f"{ratio:.2f}")
    Console().print(table)
    if file is not None:
        file.write_text(json.dumps({"device": str(place.info.hardware), "results": results}, indent=1))


if __name__ == "__main__":
    main()
