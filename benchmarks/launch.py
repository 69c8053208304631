"""What it costs to run something small: launches, recordings and copies, each backend in turn in one run.

    python benchmarks/launch.py [--repeat N] [--json]

A dispatch adds 1 to 4096 floats. "dependent" dispatches all work on one buffer, "independent" ones each
on their own. "record" is what the calling thread spends on a dispatch before it may go on, "submit" what it
spends to hand over what was recorded; a backend that waits for every command has no such moment, and its
"record" is the whole dispatch. "replay" runs 100 dependent dispatches that were prepared as a recording, in
one submission. Times are medians over the repeats, which go round the backends.
"""

from __future__ import annotations

import itertools
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dl4all.runtime import registry, spirv
from dl4all.runtime.protocols import Dispatch, span

SOURCE = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer X { float x[]; };
layout(push_constant) uniform Push { float step; } p;
void main() { x[gl_GlobalInvocationID.x] += p.step; }
"""
ELEMENTS = 4096
COUNT = 100
COPY_BYTES = 64 << 20
PUSH = struct.pack("<f", 1.0)


class Work(NamedTuple):
    """What is timed, what makes ready for it and waits for the rest of it, and its units."""

    timed: Callable[[], object]
    units: float
    unit: str
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None


def workloads(name: str, module: spirv.SpirvModule) -> dict[str, Work]:
    """What to time on a device."""
    backend = registry.open_device(name)
    stream = backend.stream
    program = backend.program(module, ())
    spans = [span(backend.allocate(4 * ELEMENTS)) for _ in range(COUNT)]
    for allocation in spans:
        stream.upload(allocation, np.zeros(4 * ELEMENTS, np.uint8))
    large, host = span(backend.allocate(COPY_BYTES)), np.ones(COPY_BYTES, np.uint8)
    independent = [Dispatch(program, [allocation], (ELEMENTS // 64, 1, 1), PUSH) for allocation in spans]
    dependent = independent[:1] * COUNT
    recording = backend.record(dependent, changing=[0])
    changes = itertools.cycle([{0: dependent[0]._replace(push=struct.pack("<f", i))} for i in range(100)])

    def record(commands: list[Dispatch]) -> None:
        for command in commands:
            stream.dispatch(command)

    def run(commands: list[Dispatch]) -> None:
        record(commands)
        stream.synchronize()

    def replay(changes: dict[int, Dispatch] | None = None) -> None:
        stream.replay(recording, changes)
        stream.synchronize()

    def upload() -> None:
        stream.upload(large, host)
        stream.synchronize()

    gigabytes = COPY_BYTES / 1e9
    few = dependent[:10]  # fewer than a batch, so that nothing is submitted while they are recorded
    return {
        "record": Work(lambda: record(few), len(few), "us each", after=stream.synchronize),
        "submit 10": Work(stream.record_event, 1, "us", lambda: record(few), stream.synchronize),
        "one dispatch": Work(lambda: run(few[:1]), 1, "us"),
        f"{COUNT} independent": Work(lambda: run(independent), COUNT, "us each"),
        f"{COUNT} dependent": Work(lambda: run(dependent), COUNT, "us each"),
        f"prepare a recording of {COUNT}": Work(lambda: backend.record(dependent).free(), COUNT, "us each"),
        f"replay {COUNT}": Work(replay, COUNT, "us each"),
        "with new push constants": Work(lambda: replay(next(changes)), COUNT, "us each"),
        "upload": Work(upload, gigabytes, "GB/s"),
        "download": Work(lambda: stream.download(large, host), gigabytes, "GB/s"),
    }


def seconds(work: Work) -> float:
    work.before()
    start = time.perf_counter()
    work.timed()
    taken = time.perf_counter() - start
    work.after()
    return taken


def measure(names: list[str], repeat: int) -> dict[str, dict[str, float]]:
    """Medians by workload and device, in the workload's unit."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "add.comp").write_text(SOURCE)
        module = spirv.load(spirv.Shader("add.comp"), Path(folder))
    work = {name: workloads(name, module) for name in names}
    results: dict[str, dict[str, float]] = {}
    for what in next(iter(work.values())):
        times: dict[str, list[float]] = {name: [] for name in names}
        for i in range(repeat + 1):
            for name in names:
                taken = seconds(work[name][what])
                if i:  # the first builds pipelines and touches memory
                    times[name].append(taken)
        results[what] = {}
        for name in names:
            units, unit = work[name][what].units, work[name][what].unit
            median = statistics.median(times[name])
            results[what][name] = units / median if unit == "GB/s" else median / units * 1e6
    return results


@click.command()
@click.option("--repeat", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(repeat: int, as_json: bool) -> None:
    """Compare the cost of launches and copies between backends."""
    names = [name for device in registry.usable() for name in device.names if name != "cpu"]
    if not names:
        raise click.ClickException(registry.find().vulkan_problem)
    results = measure(names, repeat)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    table = Table("", *names, "")
    units = {"upload": "GB/s", "download": "GB/s", "one dispatch": "us", "submit 10": "us"}
    for what, row in results.items():
        table.add_row(what, *(f"{row[name]:.1f}" for name in names), units.get(what, "us each"))
    Console().print(table)


if __name__ == "__main__":
    main()
