"""What it costs to run something small: launches and copies, each backend in turn in one run.

    python benchmarks/launch.py [--repeat N] [--json]

A dispatch adds 1 to 4096 floats. "dependent" dispatches all work on one buffer, "independent" ones each
on their own. Times are medians over the repeats, which go round the backends.
"""

from __future__ import annotations

import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dl4all.runtime import registry, spirv

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


def workloads(name: str, module: spirv.Module) -> dict[str, tuple[Callable[[], object], float, str]]:
    """What to time on a device: the work, how many units one run has, and the unit."""
    backend = registry.open_device(name)
    stream = backend.stream
    program = backend.program(module, ())
    buffers = [backend.allocate(4 * ELEMENTS) for _ in range(COUNT)]
    for buffer in buffers:
        stream.upload(buffer, np.zeros(4 * ELEMENTS, np.uint8))
    large, host = backend.allocate(COPY_BYTES), np.ones(COPY_BYTES, np.uint8)
    grid = (ELEMENTS // 64, 1, 1)

    def dispatches(targets: list[Any]) -> None:
        for buffer in targets:
            stream.dispatch(program, [buffer], grid, PUSH)
        stream.synchronize()

    def upload() -> None:
        stream.upload(large, host)
        stream.synchronize()

    gigabytes = COPY_BYTES / 1e9
    return {
        "one dispatch": (lambda: dispatches(buffers[:1]), 1, "us"),
        f"{COUNT} independent": (lambda: dispatches(buffers), COUNT, "us each"),
        f"{COUNT} dependent": (lambda: dispatches(buffers[:1] * COUNT), COUNT, "us each"),
        "upload": (upload, gigabytes, "GB/s"),
        "download": (lambda: stream.download(large, host), gigabytes, "GB/s"),
    }


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(names: list[str], repeat: int) -> dict[str, dict[str, float]]:
    """Medians by workload and device, in the workload's unit."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "add.comp").write_text(SOURCE)
        module = spirv.load(spirv.Shader("add.comp"), Path(folder))
    work = {name: workloads(name, module) for name in names}
    results: dict[str, dict[str, float]] = {}
    for what in next(iter(work.values())):
        for name in names:
            work[name][what][0]()  # builds pipelines, touches memory
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(repeat):
            for name in names:
                times[name].append(seconds(work[name][what][0]))
        results[what] = {}
        for name in names:
            _, units, unit = work[name][what]
            median = statistics.median(times[name])
            results[what][name] = units / median if unit == "GB/s" else median / units * 1e6
    return results


@click.command()
@click.option("--repeat", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(repeat: int, as_json: bool) -> None:
    """Compare the cost of launches and copies between backends."""
    names = [name for device in registry.devices() for name in device.names if name != "cpu"]
    if not names:
        raise click.ClickException(registry.find().vulkan_problem)
    results = measure(names, repeat)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    table = Table("", *names, "")
    units = {"upload": "GB/s", "download": "GB/s", "one dispatch": "us"}
    for what, row in results.items():
        table.add_row(what, *(f"{row[name]:.1f}" for name in names), units.get(what, "us each"))
    Console().print(table)


if __name__ == "__main__":
    main()
