"""``dl4all place``: says which devices would compute which modules of a network, how fast, and why."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import sys
from typing import Any

import click
from rich.console import Console

import dl4all as dl
from dl4all.errors import ArgumentError
from dl4all.multi_device.placement.picture import draw
from dl4all.multi_device.placement.placement import place as find_placement
from dl4all.multi_device.trace.speed_measurement import measure_speeds
from dl4all.runtime.simulated.description import Description
from dl4all.scheduler.cost.simulation import simulated_device
from dl4all.scheduler.cost.speed_fit import keep
from dl4all.training.config import MODELS, Factory, arguments, fits, nearest, readable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INPUTS = {"mlp": (1, 784), "lenet": (1, 1, 28, 28)}  # the usual shape of one sample; others take photographs
PHOTOGRAPH = (1, 3, 224, 224)
STATES = {"adam": 8.0, "momentum": 4.0, "sgd": 0.0}
"""Bytes that optimizers keep for each float32."""
WIDE = 160  # of a table in a pipe
FACTS = tuple(
    field.name for field in dataclasses.fields(Description) if field.name not in ("computes", "failures")
)


def _sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """The shape of a batch, from sizes with commas between them."""
    try:
        sizes = None if value is None else tuple(map(int, value.split(",")))
    except ValueError:
        sizes = ()
    if sizes is not None and (len(sizes) < 2 or min(sizes) < 1):
        raise click.BadParameter(f"expected sizes such as 8,3,224,224, samples first; got {value!r}")
    return sizes


def _facts(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[dict[str, Any]]:
    """The facts of simulated devices, each from pairs of names and numbers."""
    return [dict(map(_fact, filter(None, map(str.strip, text.split(","))))) for text in value]


def _fact(text: str) -> tuple[str, float]:
    """One fact.

    >>> _fact("memory=1e9"), _fact("gflops=0.5")
    (('memory', 1000000000), ('gflops', 0.5))
    """
    name, _, digits = text.partition("=")
    try:
        number = float(digits)
    except ValueError:
        number = math.nan
    if name not in FACTS or not 0 < number < math.inf:
        raise click.BadParameter(f"expected NAME=NUMBER with a name of {', '.join(FACTS)}; got {text!r}")
    return name, int(number) if name == "memory" else number


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--input", "shape", callback=_sizes, help="The shape of a batch, such as 8,3,224,224.")
@click.option("--batch", type=click.IntRange(min=1), help="Samples of a batch, in the place of the shape's.")
@click.option(
    "--classes", type=click.IntRange(min=1), help="Classes of the output, if not the network's usual."
)
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="An argument of the network, as in TOML."
)
@click.option("--devices", help="Names with commas between them; all devices by default.")
@click.option(
    "--simulated",
    callback=_facts,
    multiple=True,
    help='A device that is not here, by its facts: "gflops=100,gb_per_s=20,memory=1e9". May be given again.',
)
@click.option("--training/--inference", default=True, help="What the network is for.")
@click.option(
    "--optimizer",
    type=click.Choice(sorted(STATES)),
    default="adam",
    show_default=True,
    help="For its memory.",
)
@click.option(
    "--micro-batches", type=click.IntRange(min=1), default=1, show_default=True, help="Parts of a batch."
)
@click.option(
    "--measure", is_flag=True, help="Run the network on each real device first, and keep what is found."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--picture", metavar="FILE.svg", help="Draw when each device does what.")
def place(
    model: str,
    shape: tuple[int, ...] | None,
    batch: int | None,
    classes: int | None,
    settings: tuple[str, ...],
    devices: str | None,
    simulated: list[dict[str, Any]],
    training: bool,
    optimizer: str,
    micro_batches: int,
    measure: bool,
    as_json: bool,
    picture: str | None,
) -> None:
    """Say on which devices the network MODEL would run fastest, which split it would have, and why.

    MODEL is a name that dl4all train knows, such as resnet18. Nothing is trained, and without --measure
    nothing is computed: times are predicted from what each device was measured to reach, or declares.
    """
    if model not in MODELS:
        raise ArgumentError(
            f"[place] no model {model!r}{nearest(model, MODELS)}; known are {', '.join(MODELS)}"
        )
    sizes = shape or INPUTS.get(model, PHOTOGRAPH)
    sizes = sizes if batch is None else (batch, *sizes[1:])
    group = _devices(devices, simulated)
    real = [device for device in group if device.simulated is None]
    # What it is made on needs no memory, and draws no initial values.
    with simulated_device(computes=False, memory=sys.maxsize):
        network = MODELS[model](**_arguments(model, sizes, classes, settings))
    example = dl.empty(*sizes, device="cpu")
    if measure:
        for device in real:
            with Console(stderr=True).status(f"Measuring {device}"):
                keep(measure_speeds(network, device, example, training=training), device)
    found = find_placement(
        network,
        group,
        example,
        training=training,
        optimizer_bytes_per_parameter=STATES[optimizer],
        micro_batches=micro_batches,
    )
    if picture is not None:
        draw(found, picture)
    if as_json:
        print(json.dumps(found.as_dict(), indent=2))
        return
    console = Console()
    wide = Console(width=None if console.is_terminal else WIDE)
    wide.print(found.table(), highlight=False)
    if found.alternatives:
        wide.print(found.alternatives_table(), highlight=False)
    for line in found.timeline():
        print(line)


def _devices(names: str | None, simulated: list[dict[str, Any]]) -> list[dl.Device]:
    """The devices that were named, by default all unless some are simulated, and the simulated ones."""
    chosen: list[dl.Device] = []
    if names is not None:
        chosen += dl.DeviceGroup([name.strip() for name in names.split(",")]).devices
    elif not simulated:
        chosen += dl.DeviceGroup("all").devices
    return chosen + [simulated_device(**facts) for facts in simulated]


def _arguments(
    model: str, sizes: tuple[int, ...], classes: int | None, settings: tuple[str, ...]
) -> dict[str, Any]:
    """The arguments of a network: those that follow from its input, and those that were set."""
    factory: Factory = MODELS[model]
    found: dict[str, Any] = {"in_features": math.prod(sizes[1:]), "in_channels": sizes[1]}
    if classes is not None:
        found["num_classes"] = classes
    found = {name: value for name, value in found.items() if name in inspect.signature(factory).parameters}
    known = arguments(factory)
    for setting in settings:
        name, _, text = setting.partition("=")
        name = name.strip()
        if name not in known:
            raise ArgumentError(
                f"[place] {model} has no argument {name!r}{nearest(name, known)}; known are "
                f"{', '.join(known)}"
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):  # no TOML, more digits or more brackets than Python takes
            value = text
        if not fits(value, known[name]):
            raise ArgumentError(f"[place] {name} of {model} must be {readable(known[name])}, not {text!r}")
        found[name] = value
    return found
