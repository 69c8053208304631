"""Ops against the device's own copy and multiply-adds: what share of its floor each one reaches.

    python benchmarks/bandwidth.py [--device vulkan:0] [--op add] [--megabytes 16] [--json FILE]

Each op with a kernel works on float32 tensors of so many megabytes; those that multiply matrices on some of
ResNet-18's size. The floor is the time in which the device copies the bytes that the op must read and write
at least, or for the latter does the multiplications and additions in registers. Floors and ops run in turn;
"share" is the fastest floor of all turns over the fastest run. A convolution may reach more than 100 %, as
Winograd's algorithm multiplies less. On a software driver the processor time counts, over the driver's
threads (a copy has one), so that other jobs do not change it much. ``tools/ops_page.py`` takes the shares
that it prints from such a file, ``docs/measured/ops.json``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

import dl4all as dl
from benchmarks.op_works import Work, tasks, variants, works
from dl4all.ops.core.op import REGISTRY
from dl4all.runtime import registry, spirv
from dl4all.runtime.protocols import Copy, Dispatch, span

LEAST = 3  # runs of an op, the first of which builds its pipelines
GROUPS, ROUNDS, CHAINS, UNROLLED = 256, 256, 8, 16
FLOPS = GROUPS * 64 * ROUNDS * CHAINS * UNROLLED * 2
MULTIPLY_ADDS = f"""#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer X {{ float x[]; }};
void main() {{
    const float s = x[gl_GlobalInvocationID.x];
    float {", ".join(f"a{i} = s + {i}.0" for i in range(CHAINS))};
    for (uint round = 0; round < {ROUNDS}; round++) {{
{chr(10).join(f"        a{i} = fma(a{i}, s, s);" for _ in range(UNROLLED) for i in range(CHAINS))}
    }}
    x[gl_GlobalInvocationID.x] = 0.001 * ({" + ".join(f"a{i}" for i in range(CHAINS))});
}}
"""


class Device(NamedTuple):
    """What the floors are made of: a copy of so many bytes, and multiply-adds (None on the host)."""

    copy: Callable[[], object]
    nbytes: int
    multiply: Callable[[], object] | None
    threads: int | None  # of a driver that runs on the processor: its processor time counts


def opened(name: str, count: int) -> Device:
    """The device's own copy of so many floats, and its multiply-adds."""
    place = dl.device(name)
    if place.is_host:
        source, target = np.ones(count, np.float32), np.zeros(count, np.float32)
        return Device(lambda: np.copyto(target, source), 8 * count, None, None)
    backend = registry.open_device(str(place))
    first, second, few = (span(backend.allocate(4 * n)) for n in (count, count, 64 * GROUPS))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "peak.comp").write_text(MULTIPLY_ADDS)
        program = backend.program(spirv.load(spirv.Shader("peak.comp"), Path(folder)), ())
    backend.stream.upload(few, np.full(64 * GROUPS, 0.5, np.float32).view(np.uint8))

    def do(command: Copy | Dispatch) -> None:
        if isinstance(command, Copy):
            backend.stream.copy(command)
        else:
            backend.stream.dispatch(command)
        backend.stream.synchronize()

    multiply_adds = Dispatch(program, [few], (GROUPS, 1, 1), b"")
    threads = int(os.environ.get("LP_NUM_THREADS") or os.cpu_count() or 1)
    software = threads if place.info.type == "software" else None
    return Device(lambda: do(Copy(first, second)), 8 * count, lambda: do(multiply_adds), software)


def seconds(work: Callable[[], object], threads: int | None) -> float:
    """How long some work takes, or would take if nobody else used the processor."""
    clock = time.perf_counter if threads is None else time.process_time
    start = clock()
    kept = work()
    dl.synchronize()
    spent = clock() - start
    del kept
    return spent / (threads or 1)


class Row(NamedTuple):
    """An op: its fastest run, and how many bytes or operations a second it and its floor came to."""

    name: str
    seconds: float
    rate: float
    floor: float
    multiplies: bool


def measured(name: str, work: Work, device: Device, limit: float) -> Row:
    """A row of the table: runs of an op in turn with its floor, for so many seconds."""
    floor, units, needed = device.copy, device.nbytes, work.nbytes
    multiplies = device.multiply is not None and work.flops > 0
    if multiplies and device.multiply is not None:
        floor, units, needed = device.multiply, FLOPS, work.flops
    threads = device.threads
    alone_on = threads if multiplies else threads and 1
    pairs, end = list[tuple[float, float]](), time.perf_counter() + limit
    while len(pairs) < LEAST or time.perf_counter() < end:
        pairs.append((seconds(floor, alone_on), seconds(work.run, threads)))
    alone, taken = (min(times) for times in zip(*pairs, strict=True))
    return Row(name, taken, needed / taken, units / alone, multiplies)


def floors(rows: list[Row]) -> dict[bool, float]:
    """The fastest copy, and multiplications and additions, beside an op; the median over ops, as now and then
    the system counts a third of the processor time that a copy can take."""
    return {
        kind: statistics.median(row.floor for row in rows if row.multiplies == kind)
        for kind in {r.multiplies for r in rows}
    }


def shares(rows: list[Row]) -> dict[str, float]:
    """Of its floor, for each row."""
    usual = floors(rows)
    return {row.name: row.rate / usual[row.multiplies] for row in rows}


def all_rows(name: str, names: tuple[str, ...], megabytes: int, limit: float) -> Iterator[Row]:
    count = megabytes * 2**20 // 4
    device = opened(name, count)
    for op, work in works(name, count, names):
        yield measured(op, work, device, limit)
    for variant, work in ({} if names else variants(name, count)).items():
        yield measured(variant, work, device, limit)


def about(name: str, megabytes: int) -> dict[str, Any]:
    """On what was measured."""
    info = dl.device(name).info
    return {
        "device": info.hardware,
        "driver": f"{info.driver} {info.driver_version}",
        "megabytes": megabytes,
    }


@click.command()
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--op", "names", multiple=True, type=click.Choice(sorted(tasks(2**20))), help="All unless given."
)
@click.option("--megabytes", type=click.IntRange(min=1), default=16, show_default=True, help="Of an operand.")
@click.option("--seconds", "limit", default=1.5, show_default=True, help="For the runs of an op.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write shares there.")
def main(device: str, names: tuple[str, ...], megabytes: int, limit: float, file: Path | None) -> None:
    """Compare ops with the fastest that a device can do."""
    device = str(dl.device(device))
    rows: list[Row] = []
    for row in all_rows(device, names, megabytes, limit):
        rows.append(row)
        if file is not None:
            found = {name: round(share, 3) for name, share in shares(rows).items() if name in REGISTRY}
            file.write_text(json.dumps({**about(device, megabytes), "shares": found}, indent=2) + "\n")
    units = [f"{rate / 1e9:.1f} {'GFLOP/s' if kind else 'GB/s'}" for kind, rate in floors(rows).items()]
    table = Table("op", title=f"{device}: floors {' and '.join(units)}, {megabytes} MB")
    for column in ("ms", "GB/s or GFLOP/s", "share of floor"):
        table.add_column(column, justify="right")
    for row, share in zip(rows, shares(rows).values(), strict=True):
        table.add_row(row.name, f"{row.seconds * 1e3:.2f}", f"{row.rate / 1e9:.1f}", f"{100 * share:.0f} %")
    Console().print(table)


if __name__ == "__main__":
    main()
