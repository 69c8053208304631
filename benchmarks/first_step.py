"""The time before a process trains: of the import, and of the first steps.

    python benchmarks/first_step.py [--device cpu] [--compiled] [--case resnet18 ...] [--before CHECKOUT]
                                    [--threads 1] [--cpu-time] [--rounds 3] [--json]

Three ways take turns, each in processes of its own. On the CPU: NumPy computes everything
(``DL4ALL_CPU_KERNELS=0``); kernels are compiled, as the cache is empty; kernels are loaded from the cache
that the run before has filled. On a Vulkan device: all caches are empty; the shaders' SPIR-V is there, as
after set-up, but nothing that the driver made of it; all caches are full.

Milliseconds of ``import dl4all``, of the first step of a case of ``benchmarks/networks``, of the three after
it together (the second may need other kernels; a compiled step is traced in the first two), and of the least
of three later ones; medians over the rounds. With ``--before``, an older checkout takes turns with this one.
"""

from __future__ import annotations

import json
import os
import shutil
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

ROOT = Path(os.environ.get("FIRST_STEP_ROOT") or Path(__file__).resolve().parents[1])
sys.path.insert(0, str(ROOT))

WAYS = {"cpu": ("NumPy", "empty cache", "full cache"), "gpu": ("empty caches", "SPIR-V there", "full caches")}
PARTS = ("import", "first step", "next three", "later step")
USUAL = ("mlp", "cnn", "gpt", "lstm-cell", "resnet18")
Times = dict[str, float]
"""Milliseconds by part."""


def measure(name: str, device: str, compiled: bool, cpu_time: bool) -> Times:
    """The parts of this process, which has not imported dl4all yet."""
    now = time.process_time if cpu_time else time.perf_counter
    start = now()
    import dl4all as dl

    imported = now() - start
    from benchmarks import training
    from benchmarks.networks import CASES

    data = tuple(dl.tensor(array, device=device) for array in training.batch(name))
    net = training.our_network(name, training.their_network(name)[1], device)
    step = CASES[name].training(dl, net)
    call = training.call_of(dl.compile(step) if compiled else step, data)
    steps = []
    for _ in range(7):
        start = now()
        call()
        steps.append(now() - start)
    seconds = imported, steps[0], sum(steps[1:4]), min(steps[4:])
    return {part: 1e3 * spent for part, spent in zip(PARTS, seconds, strict=True)}


def child(arguments: list[str], environment: dict[str, str]) -> Times:
    """The same in a new process."""
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    found: Times = json.loads(done.stdout)
    return found


def way_environment(way: str, cache: Path) -> dict[str, str]:
    """The environment of a way; the caches are made what it says, after the ways before it."""
    if way == "SPIR-V there":
        shutil.rmtree(cache / "driver", ignore_errors=True)
        shutil.rmtree(cache / "pipelines", ignore_errors=True)
    return {
        "DL4ALL_CACHE_DIR": str(cache),
        "DL4ALL_CPU_KERNELS": "0" if way == "NumPy" else "1",
        "MESA_SHADER_CACHE_DIR": str(cache / "driver"),
        "__GL_SHADER_DISK_CACHE_PATH": str(cache / "driver"),  # NVIDIA's
    }


def rounds(
    name: str,
    count: int,
    cpu_time: bool,
    environment: dict[str, str],
    device: str = "cpu",
    compiled: bool = False,
    roots: tuple[Path, ...] = (ROOT,),
) -> list[dict[str, Times]]:
    """Medians by way, for each checkout."""
    ways = WAYS["cpu" if device == "cpu" else "gpu"]
    arguments = ["--case", name, "--device", device]
    arguments += ["--compiled"] * compiled + ["--cpu-time"] * cpu_time
    taken: list[dict[str, list[Times]]] = [{way: [] for way in ways} for _ in roots]
    for _ in range(count):
        for root, times in zip(roots, taken, strict=True):
            with tempfile.TemporaryDirectory() as cache:
                for way in ways:
                    place = way_environment(way, Path(cache)) | {"FIRST_STEP_ROOT": str(root)}
                    times[way].append(child(arguments, {**environment, **place}))
    return [
        {
            way: {part: statistics.median(times[part] for times in found) for part in PARTS}
            for way, found in of_root.items()
        }
        for of_root in taken
    ]


@click.command()
@click.option("--case", "names", multiple=True, default=USUAL, show_default=True)
@click.option("--device", default="cpu", show_default=True)
@click.option("--compiled", is_flag=True, help="Of the step under dl.compile.")
@click.option("--before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--threads", type=click.IntRange(min=1), help="Of dl4all and BLAS.")
@click.option("--cpu-time", is_flag=True, help="Processor time instead of the clock.")
@click.option("--rounds", "count", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("--child", "is_child", is_flag=True, hidden=True)
def main(
    names: tuple[str, ...],
    device: str,
    compiled: bool,
    before: Path | None,
    threads: int | None,
    cpu_time: bool,
    count: int,
    as_json: bool,
    is_child: bool,
) -> None:
    """Measure the import of dl4all and the first training steps."""
    if is_child:
        print(json.dumps(measure(names[0], device, compiled, cpu_time)))
        return
    variables = ("DL4ALL_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {} if threads is None else dict.fromkeys(variables, str(threads))
    roots = {"": ROOT} if before is None else {"before": before.resolve(), "now": ROOT}
    found: dict[str, Any] = {}
    for name in names:
        measured = rounds(name, count, cpu_time, environment, device, compiled, tuple(roots.values()))
        found[name] = dict(zip(roots, measured, strict=True))
    if as_json:
        print(json.dumps(found))
        return
    table = Table("case", "", title=f"ms{' of processor time' if cpu_time else ''}: {', '.join(PARTS)}")
    ways = WAYS["cpu" if device == "cpu" else "gpu"]
    for way in ways:
        table.add_column(way, justify="right")
    for name, by_root in found.items():
        for root, of in by_root.items():
            cells = (", ".join(f"{of[way][part]:.1f}" for part in PARTS) for way in ways)
            table.add_row(name, root, *cells)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
