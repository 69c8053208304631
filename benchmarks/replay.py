"""What the host pays to replay a recording, each backend in turn in one run.

    python benchmarks/replay.py [--repeat N] [--json]

The recording is a chain of 100 dispatches of 256 floats each. Timed is the call of ``replay`` on an idle
device, not the work: with no change, and with 1 or 5 dispatches replaced, spread over the chain, which take
new push constants each time, or alternate between two places. "dispatch" is what the same chain costs
without a recording. Workloads and backends take turns, 30 calls at a time, N times. Printed are medians of
the quietest turn: of the calling thread's processor time, and of the time that passed.
"""

from __future__ import annotations

import itertools
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from dl4all.runtime import registry, spirv
from dl4all.runtime.protocols import Backend, Dispatch, span

SOURCE = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push { float step; } p;
void main() { y[gl_GlobalInvocationID.x] = x[gl_GlobalInvocationID.x] + p.step; }
"""
ELEMENTS = 256
COUNT = 100
CHANGED = (1, 5)
WARM, BLOCK = 10, 30  # calls of a workload in turn: a training loop replays the same over and over
PUSHES = 100  # far more than what a recording keeps

Changes = Iterator[dict[int, Dispatch] | None]
Row = dict[str, float]


def workloads(backend: Backend, module: spirv.SpirvModule) -> dict[str, Callable[[], object]]:
    """What to time on a device."""
    program, stream = backend.program(module, ()), backend.stream
    spans = [span(backend.allocate(4 * ELEMENTS)) for _ in range(COUNT + 1)]
    for place in spans:
        stream.upload(place, np.zeros(4 * ELEMENTS, np.uint8))
    spare = {i: span(backend.allocate(4 * ELEMENTS)) for i in range(COUNT)}

    def command(i: int, push: float = 1.0, place: Any = None) -> Dispatch:
        bound = (spans[i], place or spans[i + 1])
        return Dispatch(program, bound, (ELEMENTS // 64, 1, 1), struct.pack("<f", push))

    commands = [command(i) for i in range(COUNT)]

    def dispatch() -> None:
        for each in commands:
            stream.dispatch(each)

    def replay(changed: list[int], changes: Changes) -> Callable[[], object]:
        recording = backend.record(commands, changed)
        return lambda: stream.replay(recording, next(changes))

    work = {"dispatch": dispatch, "no change": replay([], itertools.repeat(None))}
    for count in CHANGED:
        changed = [COUNT // count * i + COUNT // count // 2 for i in range(count)]
        pushes = [{i: command(i, push) for i in changed} for push in range(PUSHES)]
        places = [{i: command(i, 1.0, place.get(i)) for i in changed} for place in (spare, {})]
        work[f"{count} with new push constants"] = replay(changed, itertools.cycle(pushes))
        work[f"{count} in alternating places"] = replay(changed, itertools.cycle(places))
    return work


def measure(names: list[str], repeat: int) -> dict[str, dict[str, Row]]:
    """Microseconds, by workload, device and clock."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "add.comp").write_text(SOURCE)
        module = spirv.load(spirv.Shader("add.comp"), Path(folder))
    backends = {name: registry.open_device(name) for name in names}
    work = {name: workloads(backend, module) for name, backend in backends.items()}
    kinds = list(next(iter(work.values())))
    results: dict[str, dict[str, Row]] = {what: {} for what in kinds}
    for _ in range(repeat):
        for what, name in itertools.product(kinds, names):
            row = block(work[name][what], backends[name].stream.synchronize)
            known = results[what].get(name, row)
            results[what][name] = min(row, known, key=lambda found: found["thread"])
    return results


def block(timed: Callable[[], object], wait: Callable[[], object]) -> Row:
    """Medians of some calls, behind those that build pipelines and meet cold caches."""
    thread, wall = [], []
    for i in range(WARM + BLOCK):
        begun, cpu = time.perf_counter(), time.thread_time()
        timed()
        row = time.thread_time() - cpu, time.perf_counter() - begun
        wait()
        if i >= WARM:
            thread.append(row[0] * 1e6)
            wall.append(row[1] * 1e6)
    return {"thread": statistics.median(thread), "wall": statistics.median(wall)}


@click.command()
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--device", "names", multiple=True, help="Only these; by default null and all but the CPU.")
@click.option("--json", "as_json", is_flag=True)
def main(repeat: int, names: tuple[str, ...], as_json: bool) -> None:
    """Time the calls that replay a recording of 100 dispatches."""
    found = [name for device in registry.usable() for name in device.names if name != "cpu"]
    results = measure(list(names) or ["null:0", *found], repeat)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    devices = list(next(iter(results.values())))
    table = Table("us: thread (wall)", *devices)
    for what, row in results.items():
        table.add_row(what, *(f"{row[name]['thread']:.1f} ({row[name]['wall']:.1f})" for name in devices))
    Console().print(table)


if __name__ == "__main__":
    main()
