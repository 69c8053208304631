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
from dl4all.quantization.report import state_bytes
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
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Rounds.")
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


@bench.command()
@click.argument("model", metavar="MODEL")
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--dtype", help="Of its weights, in place of the files' own.")
@click.option("--prompt", "-p", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens.")
@click.option(
    "--tokens", "-n", type=click.IntRange(min=2), default=128, show_default=True, help="That follow."
)
@click.option(
    "--repeat", "-r", type=click.IntRange(min=1), default=5, show_default=True, help="Timed rounds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def llm(
    model: str, device: str, dtype: str | None, prompt: int, tokens: int, repeat: int, as_json: bool
) -> None:
    """Measure the language model MODEL as llama-bench does: a prompt (pp), and tokens one by one (tg).

    MODEL is a folder with config.json, a GGUF file, or a repository on Hugging Face's Hub. Rates are
    means of tokens a second, with their standard deviation.
    """
    from dl4all.cli.llm.options import places
    from dl4all.cli.llm.rates import measure_rates

    network, _ = dl.llm.load(model, **places(device), dtype=dtype)
    rates = measure_rates(network, prompt, tokens, repeat)
    place = str(network.embed_tokens.weight.device)
    size = state_bytes(network)
    if as_json:
        tests = [rate._asdict() for rate in rates]
        print(json.dumps({"model": model, "device": place, "bytes": size, "tests": tests}, indent=2))
        return
    table = Table("model", "size", "device", "test", "t/s")
    for rate in rates:
        shown = f"{rate.mean:.2f} ± {rate.deviation:.2f}"
        table.add_row(Path(model).name, f"{size / 1e9:.2f} GB", place, rate.test, shown)
    Console().print(table)


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
