"""``dl4all tune``: finds the fastest kernels for a device, and stores the results."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dl4all as dl
from dl4all import config
from dl4all.errors import ArgumentError, DeviceError, Dl4allError
from dl4all.ops.core.kernels import autotune
from dl4all.ops.core.kernels.autotune import SPACES, Outcome, TuningSpace
from dl4all.ops.linalg import matvec
from dl4all.runtime.records import device_records

WAIT_SECONDS = 10.0  # for another process that measures
MIN_SECONDS = 0.1  # for a problem, even if less is left of the budget
KERNELS = sorted({*SPACES, matvec.SPACE.name})


class TuneRow(NamedTuple):
    """The outcome for a problem, or the reason why there is none."""

    kernel: str
    problem: str
    outcome: Outcome | None
    failure: str = ""


@click.command()
@click.option("--device", "name", default="auto", show_default=True, help="A name that dl4all devices lists.")
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    type=click.Choice(KERNELS),
    help="Only this one; may be given more than once.",
)
@click.option(
    "--budget",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds for all of it, about.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--reset", is_flag=True, help="Forget what was found for this device, and stop.")
def tune(name: str, kernels: tuple[str, ...], budget: float, as_json: bool, reset: bool) -> None:
    """Find the fastest kernels for a device, and store the results for later processes.

    This is optional: without it, kernels follow rules for the kind of device.
    """
    device = dl.device(name)
    if device.is_host:
        raise ArgumentError(f"[tune] {device} has no kernels to choose between; name another with --device")
    named = [SPACES[kernel] for kernel in kernels or KERNELS]
    spaces = [space for space in named if space.needs <= device.features]
    with device_records.alone(WAIT_SECONDS) as locked:
        if not locked:
            raise DeviceError(
                f"[tune] another process has been measuring for {WAIT_SECONDS:.0f} s, or the cache folder "
                "cannot be written; try again later, or look with dl4all doctor"
            )
        if reset:
            count = sum(autotune.forget(device, space.name) for space in spaces)
            print(f"Forgot {count} results of {device}.")
            return
        rows = list(_search(device, spaces, budget))
    if as_json:
        print(
            json.dumps(
                {"device": str(device), "driver": device.info.driver, "results": _report(rows)}, indent=2
            )
        )
        return
    console = Console()
    Console(width=None if console.is_terminal else 160).print(_table(rows, str(device)))
    for line in _remarks(rows):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _search(device: dl.Device, spaces: Sequence[TuningSpace[Any, Any]], budget: float) -> Iterator[TuneRow]:
    """Tune every problem of every space, with a progress bar on stderr."""
    problems = [(space, label, problem) for space in spaces for label, problem in _problems(space)]
    end = time.monotonic() + budget
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Tuning", total=len(problems))
        for index, (space, label, problem) in enumerate(problems):
            progress.update(bar, completed=index, description=f"{space.name}: {label}")
            share = max((end - time.monotonic()) / (len(problems) - index), MIN_SECONDS)
            try:
                yield TuneRow(space.name, label, autotune.tune(space, device, problem, share))
            except Dl4allError as error:  # too large for the device, say; others may fit
                yield TuneRow(space.name, label, None, str(error))


def _problems(space: TuningSpace[Any, Any]) -> list[tuple[str, Any]]:
    """The problems of a space; of several with the same key, the first."""
    first = {space.key(problem): (label, problem) for label, problem in reversed(space.problems)}
    return [(label, problem) for label, problem in space.problems if (label, problem) in first.values()]


def _report(rows: Sequence[TuneRow]) -> list[dict[str, Any]]:
    return [
        {
            "kernel": row.kernel,
            "problem": row.problem,
            "failure": row.failure,
            **({} if row.outcome is None else row.outcome._asdict()),
        }
        for row in rows
    ]


def _table(rows: Sequence[TuneRow], device: str) -> Table:
    table = Table(title=f"Tuned: {device}")
    for heading in ("kernel", "problem", "built-in choice", "ms", "best ms", "gain", "chosen"):
        table.add_column(heading, justify="right" if "ms" in heading or heading == "gain" else "left")
    for kernel, problem, outcome, _ in rows:
        if outcome is None:
            table.add_row(kernel, problem, *"----", "failed")
            continue
        before, after = (outcome.seconds.get(name) for name in (outcome.usual, outcome.chosen))
        if before is None or after is None:
            times = ("-", "-", "-")
        else:
            times = (f"{before * 1e3:.3f}", f"{after * 1e3:.3f}", f"{100 * (1 - after / before):.0f} %")
        chosen = outcome.chosen if outcome.chosen != outcome.usual else "the same"
        table.add_row(
            kernel, problem, outcome.usual, *times, chosen if outcome.finished else "no time to tell"
        )
    return table


def _remarks(rows: Sequence[TuneRow]) -> Iterator[str]:
    """Remarks on the table: failures, refused kernels and settings, each once."""
    for kernel, problem, _, failure in rows:
        if failure:
            yield f"{kernel}, {problem}: {failure}"
    refused = {(row.kernel, *item) for row in rows if row.outcome for item in row.outcome.refused.items()}
    for kernel, candidate, why in sorted(refused):
        yield f"{kernel}: {candidate} is not used on this driver: {why}"
    if any(row.outcome and not row.outcome.finished for row in rows):
        yield "Some problems had no time: give a larger --budget."
    if config.tune_setting() == "off":
        yield "DL4ALL_TUNE=0, or tune = false in dl4all.toml: what was found is kept, and not used."
