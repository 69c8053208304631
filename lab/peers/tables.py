"""What was measured, as lines while it comes and as tables at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from lab.peers.cases import CASES
from lab.peers.check_device import THREADS
from lab.peers.environment import PEERS
from lab.peers.measure import Report

OURS = "dl4all-vulkan"


class Lines:
    """Prints each peer and each case of a growing report once, and keeps the report in a file."""

    def __init__(
        self, console: Console, cell: Callable[[Report], str], repeat: int, file: Path | None
    ) -> None:
        self.console, self.cell, self.repeat, self.file = console, cell, repeat, file
        self.report: Report = {"peers": {}, "cases": {}}

    def __call__(self, report: Report) -> None:
        for label in report["peers"].keys() - self.report["peers"].keys():
            peer = report["peers"][label]
            self.line(f"{label}: {peer.get('failed') or peer['about'] + ' on ' + peer['device']}")
        for name in [name for name in report["cases"] if name not in self.report["cases"]]:
            self.case(name, report["cases"][name])
        self.report = {part: dict(rows) for part, rows in report.items()}
        if self.file is not None:
            written = self.file.with_name(self.file.name + ".new")
            written.write_text(json.dumps(self.report, indent=2) + "\n")
            written.replace(self.file)

    def case(self, name: str, row: Report) -> None:
        done = {label: figure for label, figure in row.items() if "failed" not in figure}
        self.line(f"{name}: " + ", ".join(f"{label} {self.cell(figure)}" for label, figure in done.items()))
        for label, figure in row.items():
            if "failed" in figure:
                self.line(f"    no figure for {label}: {figure['failed']}")
            elif figure["runs"] < self.repeat:
                self.line(f"    {label} is slow: {figure['runs']} instead of {self.repeat} runs")

    def line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def show(console: Console, found: Report, repeat: int) -> None:
    """Times by case and peer, and how much longer than dl4all the others take."""
    running = labels(found)
    table = Table(
        Column("case", no_wrap=True),
        title=f"Milliseconds from host to host (without copies), medians of {repeat} runs",
    )
    for label in running:
        table.add_column(label, justify="right")
    for name, row in found["cases"].items():
        table.add_row(name, *(cell(row[label]) for label in running))
    console.print(table)
    if OURS in running and len(running) > 1:
        console.print(ratios(found["cases"], [label for label in running if label != OURS]))


def ratios(cases: Report, others: list[str]) -> Table:
    """Each peer's time over dl4all's, also of all convolutions that both compute."""
    table = Table(
        Column("case", no_wrap=True),
        title=f"Time over that of {OURS}, from host to host: medians, fastest runs",
    )
    for label in others:
        table.add_column(label, justify="right")
    table.add_column("best other on Vulkan", justify="right")
    for name, row in cases.items():
        table.add_row(name, *(times_longer([row], label) for label in others), advantage(row))
    convolutions = [row for name, row in cases.items() if CASES[name].is_convolution]
    if len(convolutions) > 1:
        sums = (times_longer(convolutions, label, count=True) for label in others)
        table.add_row("convolutions (how many)", *sums, "")
    return table


def times_longer(rows: list[Report], label: str, *, count: bool = False) -> str:
    """The time of a peer over dl4all's in all rows where both have one."""
    both = [row for row in rows if "failed" not in row[label] and "failed" not in row[OURS]]
    if not both:
        return "-"
    medians, fastest = (
        sum(row[label][time] for row in both) / sum(row[OURS][time] for row in both)
        for time in ("seconds", "fastest")
    )
    return f"{medians:.2f}, {fastest:.2f}" + (f" ({len(both)})" if count else "")


def advantage(row: Report) -> str:
    """The time of the fastest other library on the same device as a multiple of dl4all's."""
    others = [
        (figure["seconds"], label)
        for label, figure in row.items()
        if PEERS[label].vulkan and not label.startswith("dl4all") and "failed" not in figure
    ]
    if not others or "failed" in row[OURS]:
        return "-"
    seconds, label = min(others)
    return f"{seconds / row[OURS]['seconds']:.2f} ({label})"


def cell(figure: Report) -> str:
    if "failed" in figure:
        return "failed"
    text = f"{figure['seconds'] * 1e3:.2f}"
    return text if figure["resident"] is None else f"{text} ({figure['resident'] * 1e3:.2f})"


def show_check(console: Console, found: Report, repeat: int) -> None:
    few, many = THREADS
    table = Table(
        Column("case", no_wrap=True),
        title=f"Time with LP_NUM_THREADS={few} / with {many} (llvmpipe's threads' share of processor time), "
        f"medians of {repeat} runs",
    )
    running = labels(found)
    for label in running:
        table.add_column(label, justify="right")
    for name, row in found["cases"].items():
        table.add_row(name, *(check_cell(row[label]) for label in running))
    console.print(table)


def check_cell(figure: Report) -> str:
    if "failed" in figure:
        return "failed"
    share = figure["driver_share"]
    return f"{figure['ratio']:.2f}" + ("" if share is None else f" ({share:.0%})")


def labels(found: Report) -> list[str]:
    return [label for label, peer in found["peers"].items() if "failed" not in peer]


def show_peers(console: Console, found: Report) -> None:
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
