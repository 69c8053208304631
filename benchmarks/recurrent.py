"""A training step of recurrent layers, before a change and after it, in one run.

    git worktree add ../before COMMIT
    python benchmarks/recurrent.py --before ../before [--device vulkan:0] [--rounds 5] [--json]

The step is forward, the mean of the squared last outputs, backward, and SGD. ``dispatches`` are counted on
the null device, which has no driver. Times are wall time until the device is done: the least of the repeats
in each process, the median of the processes, which take turns, as nothing else tells a slower machine from
slower code. Ratios above 1 say how many times faster the step has become; ``PyTorch`` is what PyTorch takes
on the CPU in as many threads as it likes, if it is installed. ``training.py`` has recurrent networks beside
PyTorch; here another checkout of dl4all is what counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parents[1]

CASES = {
    "LSTM 64, 24 sequences of 30": ("LSTM", (32, 64), {}, (30, 24)),
    "LSTM 256, 32 sequences of 50": ("LSTM", (128, 256), {}, (50, 32)),
    "LSTM 64, 2 layers both ways": ("LSTM", (32, 64, 2), {"bidirectional": True}, (30, 24)),
    "LSTM 64, 1 sequence of 100": ("LSTM", (32, 64), {}, (100, 1)),
    "GRU 64, 24 sequences of 30": ("GRU", (32, 64), {}, (30, 24)),
    "RNN 64, 24 sequences of 30": ("RNN", (32, 64), {}, (30, 24)),
}
"""The class, its arguments, and the time steps and sequences."""

MEASURE = """
import json, sys, time
import numpy as np

where, cases, repeats = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
if where == "torch":
    import torch as lib
else:
    import dl4all as lib
rng = np.random.default_rng(0)

def make_step(lib, place, name, args, kwargs, shape):
    array = rng.uniform(-1, 1, (*shape, args[0])).astype(np.float32)
    layer = getattr(lib.nn, name)(*args, **kwargs)
    if place is None:
        x = lib.from_numpy(array)
    else:
        layer, x = layer.to(place), lib.tensor(array, device=place)
    optimizer = lib.optim.SGD(layer.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        last = layer(x)[0][-1]
        (last * last).mean().backward()
        optimizer.step()

    return step

found = {}
for case, (name, args, kwargs, shape) in cases.items():
    place = None if where == "torch" else lib.device(where)
    if where == "null":
        from dl4all.runtime.null.backend import NullBackend
        backend = NullBackend()
        place = lib.Device("null:0", backend)
    step = make_step(lib, place, name, args, kwargs, shape)
    for _ in range(2):
        step()
    if where == "null":
        before = backend.counts["dispatch"]
        step()
        found[case] = backend.counts["dispatch"] - before
        continue
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        if place is not None:
            place.synchronize()
        times.append(time.perf_counter() - start)
    found[case] = min(times) * 1e3
print(json.dumps(found))
"""


def measure(checkout: Path, device: str, repeats: int) -> dict[str, float]:
    """Milliseconds of each case, or dispatches on ``null``, in a process of its own."""
    command = [sys.executable, "-c", MEASURE, device, json.dumps(CASES), str(repeats)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, env=environment, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


@click.command()
@click.option(
    "--before", type=click.Path(exists=True, path_type=Path), required=True, help="another checkout"
)
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--pytorch", is_flag=True, help="time PyTorch, too")
@click.option("--json", "as_json", is_flag=True)
def main(before: Path, device: str, rounds: int, repeats: int, pytorch: bool, as_json: bool) -> None:
    """Compare training steps of recurrent layers between this checkout and another."""
    sides = {"before": (before.resolve(), device), "after": (HERE, device)}
    if pytorch:
        sides["PyTorch"] = (HERE, "torch")
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, (checkout, place) in sides.items():
            runs[side].append(measure(checkout, place, repeats))
    medians = {
        case: {side: statistics.median(run[case] for run in found) for side, found in runs.items()}
        for case in CASES
    }
    for side in ("before", "after"):
        for case, count in measure(sides[side][0], "null", 1).items():
            medians[case][f"dispatches {side}"] = count
    if as_json:
        print(json.dumps(medians, indent=2))
        return
    table = Table(device, "dispatches before", "after", "before, ms", "after, ms", "ratio", "PyTorch, ms")
    for case, found in medians.items():
        table.add_row(
            case,
            f"{found['dispatches before']:.0f}",
            f"{found['dispatches after']:.0f}",
            f"{found['before']:.2f}",
            f"{found['after']:.2f}",
            f"{found['before'] / found['after']:.2f}",
            f"{found['PyTorch']:.2f}" if pytorch else "-",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
