"""``dl4all bench``: measures networks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.mode_ladder import NETWORKS, Rung, measure_modes
from dl4all.cli.mode_picture import draw
from dl4all.errors import ArgumentError
from dl4all.training.config import nearest

WIDE = 160  # of a table in a pipe


@click.group()
def bench() -> None:
    """Measure networks on this machine."""


@bench.command()
@click.argument("model", metavar="MODEL")
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Samples of a batch.")
@click.option("--train", is_flag=True, help="Measure a training step in the place of inference.")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Timed rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--picture", metavar="FILE.svg", help="Draw the times as bars.")
def modes(
    model: str, device: str, batch: int, train: bool, repeat: int, as_json: bool, picture: str | None
) -> None:
    """Compare the ways in which the network MODEL can run: immediate, compiled, and what lies between.

    Each way has weights and a batch of its own, the same everywhere. Times are medians by the clock of rounds
    in which each way has its turn, and include waiting for the device.
    """
    if model not in NETWORKS:
        raise ArgumentError(
            f"[bench] no model {model!r}{nearest(model, NETWORKS)}; known are {', '.join(NETWORKS)}"
        )
    place = dl.device(device)
    with Console(stderr=True).status(f"Measuring {model} on {place}"):
        rungs = measure_modes(model, place, batch, train, repeat)
    what = f"{'training step' if train else 'inference'} of {model}, batch {batch}"
    title = f"{what}, on {place} ({place.info.hardware})"
    if picture is not None:
        draw(rungs, title, Path(picture))
    if as_json:
        report = {
            "model": model,
            "device": str(place),
            "batch": batch,
            "train": train,
            "modes": [dataclasses.asdict(rung) for rung in rungs],
        }
        print(json.dumps(report, indent=2))
        return
    console = Console()
    wide = Console(width=None if console.is_terminal else WIDE)
    wide.print(_table(rungs, title), highlight=False)
    for rung in rungs:
        if rung.reason:
            print(f"{rung.name}: not measured: {rung.reason}")


def _table(rungs: list[Rung], title: str) -> Table:
    table = Table(title=title)
    table.add_column("way")
    for heading in ("ms", "times compiled's", "dispatches", "submissions", "MB"):
        table.add_column(heading, justify="right")
    least = next((rung.milliseconds for rung in rungs if rung.name == "compiled"), None)
    for rung in rungs:
        if rung.milliseconds is None:
            continue
        table.add_row(
            rung.name,
            f"{rung.milliseconds:.3f}",
            "" if least is None else f"{rung.milliseconds / least:.2f}",
            "" if rung.dispatches is None else str(rung.dispatches),
            "" if rung.submissions is None else str(rung.submissions),
            "" if rung.nbytes is None else f"{rung.nbytes / 1e6:.2f}",
        )
    return table
