"""What every op pays, before a change and after it, in one run.

    git worktree add ../before COMMIT
    python benchmarks/hot_path.py --before ../before [--device vulkan:0] [--rounds 11] [--json]

``pair`` is the time to make a storage and let it go again, ``record`` what the calling thread spends on a
dispatch before it may go on, ``op`` the same for a whole op in place. Each checkout is measured in processes
of its own, in turns, as nothing else tells a slower machine from slower code: the least of many repeats in
each, and the median of the processes. Ratios above 1 are slower than before.
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

MEASURE = """
import json, sys, time
import dl4all as dl

device = dl.device(sys.argv[1])
found = {}

def least(run, count, after=lambda: None, repeats=60):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run(count)
        times.append(time.perf_counter() - start)
        after()
    return min(times) / count * 1e6

def pairs(nbytes):
    def run(count):
        allocate = device.allocate
        for _ in range(count):
            storage = allocate(nbytes)
    return run

for nbytes in (256, 100_000):
    found[f"pair of {nbytes} bytes"] = least(pairs(nbytes), 1000)

x = dl.ones(64, device=device)
FEW = 20  # fewer than a batch, so that nothing is submitted meanwhile

def ops(count):
    for _ in range(count):
        x.add_(1.0)

found["op"] = least(ops, FEW, device.synchronize, 400)
if not device.is_host:
    commands = []
    kind = type(device._stream)
    dispatch = kind.dispatch
    kind.dispatch = lambda stream, command, *rest: commands.append(command)
    x.add_(1.0)
    kind.dispatch = dispatch

    def record(count):
        for _ in range(count):
            device._stream.dispatch(commands[0])

    found["record"] = least(record, FEW, device.synchronize, 400)
print(json.dumps(found))
"""


def measure(checkout: Path, device: str) -> dict[str, float]:
    """Microseconds by what was measured, in a process of its own."""
    path = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", MEASURE, device]
    done = subprocess.run(command, env=path, cwd=checkout, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@click.command()
@click.option(
    "--before", type=click.Path(exists=True, path_type=Path), required=True, help="another checkout"
)
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=11, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(before: Path, device: str, rounds: int, as_json: bool) -> None:
    """Compare the costs that every op has between this checkout and another."""
    found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for _ in range(rounds):
        found["before"].append(measure(before.resolve(), device))
        found["after"].append(measure(HERE, device))
    names = list(found["after"][0])
    medians = {
        name: {side: statistics.median(run[name] for run in runs) for side, runs in found.items()}
        for name in names
    }
    if as_json:
        print(json.dumps(medians, indent=2))
        return
    table = Table(device, "before, us", "after, us", "ratio")
    for name, sides in medians.items():
        ratio = sides["after"] / sides["before"]
        table.add_row(name, f"{sides['before']:.3f}", f"{sides['after']:.3f}", f"{ratio:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
