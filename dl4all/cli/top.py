"""``dl4all top``: a table of what the devices of running processes do, drawn anew each second."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterable

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dl4all.allocator.allocator import amount
from dl4all.scheduler.monitor.published import DeviceRates, ProcessReport, read

SILENT_SECONDS = 5.0  # after which a process that wrote nothing is said to be silent
NOBODY = (
    "No process of yours tells what its devices do. Those that have a dl.DeviceGroup or a dl.Stream, or that "
    "train with dl.Trainer, do so; others do with DL4ALL_TOP=1."
)
HEADINGS = ("busy", "allocated", "reserved", "memory", "kernels/s", "up MB/s", "down MB/s", "queue")


@click.command()
@click.option("--once", is_flag=True, help="Print one table and end.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON each time instead of a table.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
def top(once: bool, as_json: bool, interval: float) -> None:
    """Show what the devices of your running processes do: busy, memory, kernels and copies a second.

    Processes that have a dl.DeviceGroup or a dl.Stream, or that train with dl.Trainer, are shown; with
    DL4ALL_TOP=1 in their environment all that use a device are, and with DL4ALL_TOP=0 none. Ctrl-C ends it.
    """
    terminal = Console()
    console = Console(width=None if terminal.is_terminal else 250)
    with contextlib.suppress(KeyboardInterrupt):
        if once or as_json or not terminal.is_terminal:
            _print(console, as_json, None if once else interval)
        else:
            _redraw(console, interval)


def _print(console: Console, as_json: bool, interval: float | None) -> None:
    """One report after another, or a single one."""
    while True:
        reports = read()
        if as_json:
            found = {"processes": [dataclasses.asdict(report) for report in reports]}
            print(json.dumps(found), flush=True)
        else:
            console.print(_table(reports))
        if interval is None:
            return
        time.sleep(interval)


def _redraw(console: Console, interval: float) -> None:
    with Live(_table(read()), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(_table(read()), refresh=True)


def _table(reports: Iterable[ProcessReport]) -> Table | str:
    """A row for each device of each process."""
    table = Table()
    listed = list(reports)
    ranked = ["rank"] if any(report.rank for report in listed) else []
    for heading in ("pid", *ranked, "command", "device"):
        table.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=40)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    for report in listed:
        process = [Text(str(report.pid)), *([Text(report.rank)] if ranked else []), Text(report.command)]
        for i, device in enumerate(report.devices):
            shown = [Text()] * len(process) if i else process
            table.add_row(*shown, Text(device.name), *_cells(report, device))
    return table if table.row_count else NOBODY


def _cells(report: ProcessReport, device: DeviceRates) -> list[str | Text]:
    silent = report.age > SILENT_SECONDS
    if silent:
        rates = ["-"] * 4
    else:
        rates = [
            "-" if device.busy is None else f"{device.busy:.0%}",
            f"{device.kernels_per_second:.0f}",
            f"{device.uploaded_per_second / 1e6:.1f}",
            f"{device.downloaded_per_second / 1e6:.1f}",
        ]
    memory = [amount(int(number)) for number in (device.allocated, device.reserved, device.memory)]
    return [rates[0], *memory, *rates[1:], f"{device.queued:.0f}", Text(_state(report, device, silent))]


def _state(report: ProcessReport, device: DeviceRates, silent: bool) -> str:
    """The state of a device, in a word or two.

    >>> facts = dict(zip(DeviceRates.__dataclass_fields__, ("cpu", 0.5, *[0.0] * 7, False, ""), strict=True))
    >>> _state(ProcessReport(1, "python", 0.2, ()), DeviceRates(**facts), False)
    'works'
    """
    if device.retired:
        return f"retired: {device.retired}"
    if silent:
        return f"silent for {report.age:.0f} s"
    state = "works" if device.busy or device.kernels_per_second else "idle"
    return f"{state} (virtual clock)" if device.virtual else state
