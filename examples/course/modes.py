"""One network in all the ways it can run: immediate, cached, as a graph, compiled, and as op codes.

python examples/course/modes.py --picture modes.svg

It is ``dl4all bench modes``, with the sentence that belongs to each way.
"""

from __future__ import annotations

from pathlib import Path

import click

import dl4all as dl
from dl4all.cli.mode_ladder import NETWORKS, measure_modes
from dl4all.cli.mode_picture import draw
from dl4all.cli.run import run


@click.command()
@click.option("--device", default="auto", show_default=True, help="auto, cpu, vulkan:0, kompute:0, ...")
@click.option("--model", type=click.Choice(sorted(NETWORKS)), default="mlp", show_default=True)
@click.option("--batch", default=1, show_default=True, help="Samples.")
@click.option("--train", is_flag=True, help="A training step in the place of inference.")
@click.option("--repeat", default=10, show_default=True, help="Rounds.")
@click.option("--picture", metavar="FILE.svg", help="Draw the times.")
def main(device: str, model: str, batch: int, train: bool, repeat: int, picture: str | None) -> None:
    place = dl.device(device)
    rungs = measure_modes(model, place, batch, train, repeat)
    for rung in rungs:
        ms = f"{rung.milliseconds:>9.3f} ms" if rung.milliseconds is not None else f"{'-':>12}"
        launched = "" if rung.dispatches is None else f"{rung.dispatches:>5} dispatches"
        print(f"{rung.name:<24} {ms} {launched} {rung.reason}".rstrip())
    if picture is not None:
        draw(rungs, f"{model}, batch {batch}, on {place}", Path(picture))


if __name__ == "__main__":
    run(main, "modes")
