"""Classify pictures with ResNet-18 on the best device of this machine.

python examples/resnet18.py                                     # digits, with the network that comes along
python examples/resnet18.py cat.jpg --weights resnet18.pth --labels imagenet_classes.txt
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.run import run

RANDOM = (
    "No --weights: the network's weights are random, so the labels below mean nothing. "
    "torchvision's resnet18 file (.pth or .safetensors) gives real ones."
)
CLASSES = 1000
TOP = 5
DIGITS_AT_A_TIME = 64
TRACED_CALLS = 2  # before a network is compiled


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("images", nargs=-1, metavar="[IMAGE...]")
@click.option("--device", default="auto", show_default=True, help="auto, gpu, cpu, vulkan:0, kompute:0, ...")
@click.option("--compile", "compiled", is_flag=True, help="Compile the network.")
@click.option(
    "--weights", metavar="FILE", help="State dict of torchvision's ResNet-18, .safetensors or .pth."
)
@click.option("--labels", metavar="FILE", help=f"Text file with {CLASSES} class names, one a line.")
@click.option("--batch", type=click.IntRange(min=1), help="Images at a time: 1 picture, 64 digits.")
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True, help="Timed runs.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of the random weights.")
@click.option("--save-logits", metavar="FILE.npy", help="Write the logits, shape (images, classes).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def classify(
    images: tuple[str, ...],
    device: str,
    compiled: bool,
    weights: str | None,
    labels: str | None,
    batch: int | None,
    repeat: int,
    seed: int,
    save_logits: str | None,
    as_json: bool,
) -> None:
    """Classify each IMAGE and show its five most likely classes.

    Without an IMAGE, the slim ResNet-18 that comes with dl4all reads handwritten digits that it was not
    trained on, and its answers are compared with the true ones.
    """
    place = dl.device(device)
    if not images:
        if weights is not None or labels is not None:
            raise click.UsageError("--weights and --labels are for pictures, and there is no IMAGE")
        read_digits(place, batch or DIGITS_AT_A_TIME, repeat, save_logits, as_json, compiled)
        return
    batch = batch or 1
    names = read_labels(labels)
    pixels = np.stack([dl.data.imagenet_eval(dl.data.load_image(image)) for image in images])
    network = load_network(weights, seed).to(place)
    if weights is None:
        print(RANDOM, file=sys.stderr)

    logits, milliseconds = infer(network, pixels, place, batch, repeat, compiled)
    best, probabilities = top(logits)
    if save_logits is not None:
        save(save_logits, logits)
    if as_json:
        report = {
            "device": str(place),
            "hardware": place.info.hardware,
            "input_shape": [batch, *pixels.shape[1:]],
            "output_shape": list(logits.shape),
            "milliseconds_per_image": milliseconds,
            "random_weights": weights is None,
            "logits_file": save_logits,
            "images": [
                {"file": image, "top5": indices, "labels": [names[i] for i in indices], "probabilities": p}
                for image, indices, p in zip(images, best, probabilities, strict=True)
            ],
        }
        print(json.dumps(report, indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    for image, indices, shares in zip(images, best, probabilities, strict=True):
        table = Table(title=Path(image).name)
        table.add_column("class")
        table.add_column("probability", justify="right")
        for index, share in zip(indices, shares, strict=True):
            table.add_row(names[index], f"{share:.1%}")
        console.print(table)
    console.print(timing(milliseconds, place, batch, repeat), highlight=False)


def read_digits(
    place: dl.Device, batch: int, repeat: int, save_logits: str | None, as_json: bool, compiled: bool
) -> None:
    """Read the digits that examples/resnet_digits.py held out, and count what is right."""
    _, held_out = dl.data.random_split(dl.data.digits(32), (0.8, 0.2))
    pixels, truth = next(iter(dl.data.DataLoader(held_out, len(held_out), device=None)))
    network = dl.models.resnet18_digits().fold_batch_norm().to(place)
    logits, milliseconds = infer(network, pixels, place, batch, repeat, compiled)
    answers = logits.argmax(1)
    right = answers == truth
    if save_logits is not None:
        save(save_logits, logits)
    if as_json:
        report = {
            "device": str(place),
            "hardware": place.info.hardware,
            "input_shape": [batch, *pixels.shape[1:]],
            "output_shape": list(logits.shape),
            "milliseconds_per_image": milliseconds,
            "random_weights": False,
            "logits_file": save_logits,
            "accuracy": float(right.mean()),
            "truth": truth.tolist(),
            "answers": answers.tolist(),
        }
        print(json.dumps(report, indent=2))
        return
    table = Table(title="Handwritten digits")
    for heading in ("digit", "images", "read right", "taken for"):
        table.add_column(heading, justify="left" if heading == "taken for" else "right")
    for digit in range(10):
        these = truth == digit
        wrong = ", ".join(str(answer) for answer in answers[these & ~right])
        table.add_row(str(digit), str(these.sum()), str((these & right).sum()), wrong)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(
        f"accuracy {right.mean():.2%}: {right.sum()} of {len(right)} digits, none of them trained on",
        highlight=False,
    )
    console.print(timing(milliseconds, place, batch, repeat), highlight=False)


def timing(milliseconds: float, place: dl.Device, batch: int, repeat: int) -> str:
    where = f"{place} ({place.info.hardware})"
    return f"{milliseconds:.1f} ms per image on {where}, batch {batch}, median of {repeat}"


def read_labels(path: str | None) -> list[str]:
    """The class names, or ``class 0`` ... without a file."""
    if path is None:
        return [f"class {i}" for i in range(CLASSES)]
    try:
        names = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise dl.errors.FileFormatError(f"{path}: cannot be read as text: {error}") from None
    if len(names) != CLASSES:
        raise dl.errors.FileFormatError(f"{path}: expected {CLASSES} lines, one a class, found {len(names)}")
    return names


def load_network(weights: str | None, seed: int) -> dl.models.ResNet:
    dl.manual_seed(seed)
    network = dl.models.resnet18(CLASSES).eval()
    if weights is not None:
        network.load_state_dict(dl.io.load_weights(weights))
    return network.fold_batch_norm()


@dl.no_grad()
def infer(
    network: dl.models.ResNet,
    pixels: npt.NDArray[np.float32],
    place: dl.Device,
    batch: int,
    repeat: int,
    compiled: bool,
) -> tuple[npt.NDArray[np.float32], float]:
    """Logits of every picture, and the median milliseconds per image over `repeat` runs.

    A batch that the pictures do not fill is filled by repeating them.
    """
    filled = np.resize(pixels, (math.ceil(len(pixels) / batch) * batch, *pixels.shape[1:]))
    inputs = [dl.from_numpy(part, place) for part in np.split(filled, len(filled) // batch)]
    call: Callable[[dl.Tensor], dl.Tensor] = dl.compile(network) if compiled else network
    for _ in range(TRACED_CALLS if compiled else 0):
        call(inputs[0])
    logits = np.concatenate([call(x).numpy() for x in inputs])  # also warms caches up
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        for x in inputs:
            call(x)
        dl.synchronize(place)
        seconds.append(time.perf_counter() - start)
    return logits[: len(pixels)], statistics.median(seconds) / len(filled) * 1e3


def top(logits: npt.NDArray[np.float32]) -> tuple[list[Any], list[Any]]:
    """The most likely classes of each row and their probabilities."""
    shares = dl.softmax(dl.from_numpy(logits), dim=1)
    values, indices = dl.topk(shares, TOP)
    return indices.tolist(), values.tolist()


def save(path: str, logits: npt.NDArray[np.float32]) -> None:
    try:
        with Path(path).open("wb") as file:  # np.save on a name would append .npy to it
            np.save(file, logits)
    except OSError as error:
        raise dl.errors.FileFormatError(f"{path}: cannot be written: {error.strerror}") from None


if __name__ == "__main__":
    run(classify, "resnet18.py")
