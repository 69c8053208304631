"""dl4all beside other libraries on the same Vulkan device, and NumPy and PyTorch on the processor.

    python benchmarks/peers/run.py [--case matmul-512] [--peer ncnn] [--repeat N] [--check-device] [--json]

Each peer is a process of its own; the runs go round the peers, and a peer's answer must be right before its
time counts. docs/peers.md says what is compared and how.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

import dl4all as dl
from benchmarks.peers.cases import CASES
from benchmarks.peers.check_device import THREADS, check_device
from benchmarks.peers.environment import PEERS
from benchmarks.peers.measure import Entrant, measure
from benchmarks.peers.serve import DEVICE_VARIABLE
from dl4all.cli.run import run

OURS = "dl4all-vulkan"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="All unless given.")
@click.option("--peer", "peers", multiple=True, type=click.Choice(list(PEERS)), help="All unless given.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Timed runs of each."
)
@click.option(
    "--check-device",
    "check",
    is_flag=True,
    help="Show instead who obeys llvmpipe's LP_NUM_THREADS, and so runs on it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def benchmark(
    cases: tuple[str, ...], peers: tuple[str, ...], repeat: int, check: bool, as_json: bool
) -> None:
    """Compare dl4all with other libraries on the same Vulkan device."""
    chosen = [CASES[name] for name in cases or CASES]
    names = list(peers or PEERS)
    environment = device_environment()
    if check:
        found = check_device(names, chosen, repeat, environment)
    else:
        found = measure([Entrant(name, name, environment) for name in names], chosen, repeat)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else 150)
    if check:
        show_check(console, found, repeat)
    else:
        show(console, found, repeat)
    show_peers(console, found)


def device_environment() -> dict[str, str]:
    """What makes the others use the device that dl4all calls vulkan:0, where there is one."""
    hardware = [info.hardware for info in dl.devices() if "vulkan:0" in info.names]
    return {DEVICE_VARIABLE: os.environ.get(DEVICE_VARIABLE, hardware[0])} if hardware else {}


def show(console: Console, found: dict[str, Any], repeat: int) -> None:
    """Times by case and peer, and the sums of the convolutions where there are several."""
    running = [label for label, peer in found["peers"].items() if "failed" not in peer]
    table = Table("case", title=f"Milliseconds from host to host (without copies), medians of {repeat} runs")
    for label in running:
        table.add_column(label, justify="right")
    table.add_column(f"best other on Vulkan / {OURS}", justify="right")
    rows = dict(found["cases"])
    convolutions = {name: row for name, row in rows.items() if CASES[name].is_convolution}
    if len(convolutions) > 1:
        rows[f"{len(convolutions)} convolutions"] = total(running, list(convolutions.values()))
    for name, row in rows.items():
        table.add_row(name, *(cell(row[label]) for label in running), advantage(row))
    console.print(table)


def total(labels: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums of a column; failed where one of its cases is, and no "resident" where one has none."""
    sums: dict[str, Any] = {}
    for label in labels:
        figures = [row[label] for row in rows]
        if any("failed" in figure for figure in figures):
            sums[label] = {"failed": "a case failed"}
            continue
        resident = [figure["resident"] for figure in figures]
        sums[label] = {
            "seconds": sum(figure["seconds"] for figure in figures),
            "resident": None if None in resident else sum(resident),
        }
    return sums


def cell(figure: dict[str, Any]) -> str:
    if "failed" in figure:
        return "failed"
    text = f"{figure['seconds'] * 1e3:.2f}"
    return text if figure["resident"] is None else f"{text} ({figure['resident'] * 1e3:.2f})"


def advantage(row: dict[str, Any]) -> str:
    """The time of the fastest other library on the same device as a multiple of dl4all's."""
    others = [
        (figure["seconds"], label)
        for label, figure in row.items()
        if PEERS[label].vulkan and not label.startswith("dl4all") and "failed" not in figure
    ]
    if not others or "failed" in row.get(OURS, {"failed": "not asked for"}):
        return "-"
    seconds, label = min(others)
    return f"{seconds / row[OURS]['seconds']:.2f} ({label})"


def show_check(console: Console, found: dict[str, Any], repeat: int) -> None:
    few, many = THREADS
    table = Table(
        "case",
        title=f"Time with LP_NUM_THREADS={few} / with {many} (llvmpipe's threads' share of processor time), "
        f"medians of {repeat} runs",
    )
    running = [label for label, peer in found["peers"].items() if "failed" not in peer]
    for label in running:
        table.add_column(label, justify="right")
    for name, row in found["cases"].items():
        table.add_row(name, *(check_cell(row[label]) for label in running))
    console.print(table)


def check_cell(figure: dict[str, Any]) -> str:
    if "failed" in figure:
        return "failed"
    share = figure["driver_share"]
    return f"{figure['ratio']:.2f}" + ("" if share is None else f" ({share:.0%})")


def show_peers(console: Console, found: dict[str, Any]) -> None:
    """Who ran and where, or why not."""
    table = Table("peer", "what", "device, or why there are no figures")
    for label, peer in found["peers"].items():
        table.add_row(label, peer.get("about", ""), peer.get("device") or peer["failed"])
        reasons: dict[str, list[str]] = {}
        for name, row in found["cases"].items():
            if "failed" in row.get(label, {}):
                reasons.setdefault(row[label]["failed"], []).append(name)
        for reason, names in reasons.items():
            table.add_row("", ", ".join(names), reason)
    console.print(table)


if __name__ == "__main__":
    run(benchmark, "run.py")
