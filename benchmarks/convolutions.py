"""Convolutions of the CPU beside PyTorch's: layers of known networks, forward and both gradients.

    python benchmarks/convolutions.py [--only depthwise ...] [--threads 1] [--repeat 11] [--json]

Microseconds, medians of turns that the libraries take, and times PyTorch's. Operands lie in memory already,
and are those of a layer: images of so many channels and such a size, filters with stride, groups and padding
that keeps the size. The last line has the geometric means of the ratios. With ``DL4ALL_WINOGRAD=0`` it shows
what transformed tiles save.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import threads
from benchmarks.turns import in_turn

DIRECTIONS = ("forward", "of the input", "of the filters")


class Layer(NamedTuple):
    """A layer and its images."""

    images: int
    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1
    groups: int = 1


LAYERS = {
    "depthwise 3x3, 32 at 56": Layer(8, 32, 32, 56, 3, groups=32),
    "depthwise 3x3, 96 at 56, stride 2": Layer(8, 96, 96, 56, 3, 2, 96),
    "depthwise 3x3, 144 at 28": Layer(8, 144, 144, 28, 3, groups=144),
    "depthwise 3x3, 384 at 14": Layer(8, 384, 384, 14, 3, groups=384),
    "depthwise 3x3, 960 at 7": Layer(8, 960, 960, 7, 3, groups=960),
    "depthwise 5x5, 384 at 14": Layer(8, 384, 384, 14, 5, groups=384),
    "depthwise 7x7, 96 at 28": Layer(8, 96, 96, 28, 7, groups=96),
    "1x1, 24 to 144 at 56": Layer(1, 24, 144, 56, 1),
    "1x1, 576 to 96 at 14": Layer(1, 576, 96, 14, 1),
    "1x1, 960 to 160 at 7": Layer(1, 960, 160, 7, 1),
    "3x3, 16 at 128": Layer(1, 16, 16, 128, 3),
    "3x3, 64 at 56": Layer(1, 64, 64, 56, 3),
    "3x3, 128 at 28": Layer(1, 128, 128, 28, 3),
    "3x3, 256 at 14": Layer(1, 256, 256, 14, 3),
    "3x3, 512 at 7": Layer(1, 512, 512, 7, 3),
    "3x3, 64 at 56, eight images": Layer(8, 64, 64, 56, 3),
    "3x3, 256 at 14, eight images": Layer(8, 256, 256, 14, 3),
    "7x7, 3 to 64 at 224, stride 2": Layer(1, 3, 64, 224, 7, 2),
}


def calls(layer: Layer) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """The calls of PyTorch and of dl4all, by direction."""
    rng = np.random.default_rng(0)
    pad, size = layer.kernel // 2, (layer.size, layer.size)
    x = rng.standard_normal((layer.images, layer.channels, *size), np.float32)
    w = rng.standard_normal(
        (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel), np.float32
    )
    theirs_x, theirs_w = torch.from_numpy(x), torch.from_numpy(w)
    ours_x, ours_w = (dl.tensor(each, device="cpu") for each in (x, w))
    given: dict[str, Any] = {"stride": layer.stride, "padding": pad, "groups": layer.groups}
    result = torch.nn.functional.conv2d(theirs_x, theirs_w, **given)
    gradient = rng.standard_normal(tuple(result.shape), np.float32)
    theirs_g, ours_g = torch.from_numpy(gradient), dl.tensor(gradient, device="cpu")

    def backward(*wanted: bool) -> Callable[[], Any]:
        numbers = [layer.stride] * 2, [pad] * 2, [1, 1], False, [0, 0], layer.groups
        function = torch.ops.aten.convolution_backward
        return lambda: function(theirs_g, theirs_x, theirs_w, None, *numbers, wanted)

    return {
        "forward": (
            lambda: torch.nn.functional.conv2d(theirs_x, theirs_w, **given),
            lambda: dl.nn.functional.conv2d(ours_x, ours_w, **given),
        ),
        "of the input": (
            backward(True, False, False),
            lambda: dl.ops.conv_input(ours_g, ours_w, size, **given),
        ),
        "of the filters": (
            backward(False, True, False),
            lambda: dl.ops.conv_weight(ours_g, ours_x, (layer.kernel, layer.kernel), **given),
        ),
    }


@click.command()
@click.option("--only", multiple=True, help="Layers whose names contain one of these.")
@click.option("--threads", "count", type=click.IntRange(min=1), help="Of both libraries.")
@click.option("--repeat", type=click.IntRange(min=1), default=11, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(only: tuple[str, ...], count: int | None, repeat: int, as_json: bool) -> None:
    """Compare convolutions of the CPU with PyTorch's."""
    threads.hold(count)
    names = [name for name in LAYERS if not only or any(part in name for part in only)]
    found: dict[str, dict[str, tuple[float, float]]] = {}
    with torch.no_grad(), dl.no_grad():
        for name in names:
            found[name] = {}
            for direction, (theirs, ours) in calls(LAYERS[name]).items():
                times = in_turn({"pytorch": theirs, "dl4all": ours}, repeat, warm_up=4, least=2.0)
                first, second = (1e3 * statistics.median(times[who].clock) for who in ("pytorch", "dl4all"))
                found[name][direction] = first, second
    if as_json:
        print(json.dumps(found))
        return
    table = Table("layer", *DIRECTIONS, title="us: PyTorch, dl4all (dl4all / PyTorch)")
    for name, of in found.items():
        cells = (f"{theirs:.0f}, {ours:.0f} ({ours / theirs:.2f})" for theirs, ours in of.values())
        table.add_row(name, *cells)
    table.add_section()
    means = (statistics.geometric_mean(of[d][1] / of[d][0] for of in found.values()) for d in DIRECTIONS)
    table.add_row("geometric mean", *(f"{mean:.2f}" for mean in means))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    main()
