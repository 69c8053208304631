"""What a process waits for before it trains on the CPU: the import, and the first step.

    python benchmarks/first_step.py [--case resnet18 ...] [--threads 1] [--cpu-time] [--rounds 3] [--json]

Three ways take turns, each in processes of its own: NumPy computes everything (``DL4ALL_CPU_KERNELS=0``);
kernels are compiled, as the cache is empty; kernels are loaded from the cache that the run before has filled.
Milliseconds of ``import dl4all``, of the first step of a case of ``benchmarks/networks`` and of the least of
three later ones; medians over the rounds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WAYS = ("NumPy", "empty cache", "full cache")
PARTS = ("import", "first step", "later step")
USUAL = ("mlp", "cnn", "gpt", "lstm-cell", "resnet18")
Times = dict[str, float]
"""Milliseconds by part."""


def measure(name: str, cpu_time: bool) -> Times:
    """The parts of this process, which has not imported dl4all yet."""
    now = time.process_time if cpu_time else time.perf_counter
    start = now()
    import dl4all as dl

    imported = now() - start
    from benchmarks import training
    from benchmarks.networks import CASES

    data = tuple(dl.tensor(array, device="cpu") for array in training.batch(name))
    net = training.our_network(name, training.their_network(name)[1], "cpu")
    call = training.call_of(CASES[name].training(dl, net), data)
    steps = []
    for _ in range(4):
        start = now()
        call()
        steps.append(now() - start)
    return {"import": 1e3 * imported, "first step": 1e3 * steps[0], "later step": 1e3 * min(steps[1:])}


def child(name: str, cpu_time: bool, environment: dict[str, str]) -> Times:
    """The same in a new process."""
    command = [sys.executable, __file__, "--child", "--case", name, *(["--cpu-time"] if cpu_time else [])]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    found: Times = json.loads(done.stdout)
    return found


def rounds(name: str, count: int, cpu_time: bool, environment: dict[str, str]) -> dict[str, Times]:
    """Medians by way."""
    taken: dict[str, list[Times]] = {way: [] for way in WAYS}
    for _ in range(count):
        with tempfile.TemporaryDirectory() as cache:
            place = {**environment, "DL4ALL_CACHE_DIR": cache}
            for way in WAYS:
                kernels = {"DL4ALL_CPU_KERNELS": "0" if way == WAYS[0] else "1"}
                taken[way].append(child(name, cpu_time, {**place, **kernels}))
    return {
        way: {part: statistics.median(times[part] for times in found) for part in PARTS}
        for way, found in taken.items()
    }


@click.command()
@click.option("--case", "names", multiple=True, default=USUAL, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), help="Of dl4all and BLAS.")
@click.option("--cpu-time", is_flag=True, help="Processor time instead of the clock.")
@click.option("--rounds", "count", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--child", "is_child", is_flag=True, hidden=True)
def main(
    names: tuple[str, ...], threads: int | None, cpu_time: bool, count: int, as_json: bool, is_child: bool
) -> None:
    """Measure the import of dl4all and the first training step."""
    if is_child:
        print(json.dumps(measure(names[0], cpu_time)))
        return
    variables = ("DL4ALL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {} if threads is None else dict.fromkeys(variables, str(threads))
    found: dict[str, Any] = {name: rounds(name, count, cpu_time, environment) for name in names}
    if as_json:
        print(json.dumps(found))
        return
    table = Table("case", title=f"ms{' of processor time' if cpu_time else ''}: {', '.join(PARTS)}")
    for way in WAYS:
        table.add_column(way, justify="right")
    for name, ways in found.items():
        table.add_row(name, *(", ".join(f"{ways[way][part]:.1f}" for part in PARTS) for way in WAYS))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    main()
