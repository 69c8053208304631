"""``dl4all run``: computes an ONNX model."""

from __future__ import annotations

import statistics
import time
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.model_inputs import open_sizes, random_input, read_inputs, save_outputs, sizes_of
from dl4all.onnx.graph import NDArray
from dl4all.ops.core.dtypes import KINDS

WARM_UP = 3  # calls, after which a compiled one replays


@click.command("run")
@click.argument("model", metavar="MODEL.onnx")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help=".npy, .npz with arrays by name, or an image, which is resized and normalised as ImageNet's "
    "networks expect. Inputs without a file are random floats, or integers of 1.",
)
@open_sizes
@click.option("--device", default="auto", show_default=True, help="Where to compute.")
@click.option("--output", metavar="FILE", help="Write the results: an .npz file, or an .npy file of one.")
@click.option("--repeat", type=click.IntRange(min=1), help="Time this many calls, after a warm-up.")
@click.option("--profile", "profiled", is_flag=True, help="Print where the time of one call goes.")
def run_model(
    model: str,
    inputs: tuple[str, ...],
    size: tuple[str, ...],
    device: str,
    output: str | None,
    repeat: int | None,
    profiled: bool,
) -> None:
    """Compute MODEL.onnx on any device.

    Example: dl4all run resnet50.onnx --input cat.png --repeat 20
    """
    module = dl.onnx.load(model, device=device)
    sizes = sizes_of(size)
    given = read_inputs(inputs, module.graph.arguments, sizes)
    for info in module.graph.arguments:
        if info.name not in given and info.kind == "tensor":
            given[info.name] = random_input(info, sizes)
    arguments = {name: _on(module, value) for name, value in given.items()}
    console = Console()
    with dl.inference_mode():
        results = _call(module, arguments)
        _print(console, dict(zip(module.output_names, results, strict=True)))
        if output is not None:
            save_outputs(output, dict(zip(module.output_names, map(_array, results), strict=True)))
        if repeat is not None:
            console.print(_time(module, arguments, repeat), highlight=False)
        if profiled:
            module.compiles = False  # which would be one kernel's name
            with dl.profile() as profile:
                _call(module, arguments)
            console.print(str(profile), highlight=False)


def _on(module: Any, value: Any) -> Any:
    """An input where it is computed with, so that no call waits for its way there."""
    return dl.from_numpy(value).to(module.device) if value.dtype in KINDS else value


def _call(module: Any, arguments: dict[str, Any]) -> tuple[Any, ...]:
    results = module(**arguments)
    module.device.synchronize()
    return results if isinstance(results, tuple) else (results,)


def _array(value: Any) -> NDArray:
    """A result on the host; a sequence as an array of objects would need a pickle, so it is stacked."""
    if isinstance(value, list):
        return np.stack([one.numpy() for one in value])
    return np.zeros(0) if value is None else np.asarray(value.numpy())


def _time(module: Any, arguments: dict[str, Any], repeat: int) -> str:
    for _ in range(WARM_UP):
        _call(module, arguments)
    seconds = []
    for _ in range(repeat):
        begun = time.perf_counter()
        _call(module, arguments)
        seconds.append(time.perf_counter() - begun)
    median, least = 1e3 * statistics.median(seconds), 1e3 * min(seconds)
    return f"{median:.3f} ms a call on {module.device.name} (median of {repeat}; least {least:.3f})"


def _print(console: Console, results: dict[str, Any]) -> None:
    table = Table("output", "dtype", "shape", "least", "mean", "largest")
    for name, value in results.items():
        if not isinstance(value, dl.Tensor):
            table.add_row(name, type(value).__name__, "", "", "", "")
            continue
        array = value.numpy()
        wide = array.astype(np.float64)
        numbers = [f"{f(wide):.5g}" for f in (np.min, np.mean, np.max)] if array.size else [""] * 3
        table.add_row(name, str(array.dtype), str(tuple(array.shape)), *numbers)
    console.print(table)
