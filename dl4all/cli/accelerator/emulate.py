"""``dl4all emulate``: a network as a program of an accelerator, on its clock."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.mode_ladder import NETWORKS
from dl4all.errors import ArgumentError, FileFormatError
from dl4all.graph.accelerator.report import AcceleratorReport
from dl4all.training.config import nearest

WIDE = 120  # of a table in a pipe


def _array(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", value)
    if found is None or "0" in found.groups():
        raise click.BadParameter(f"expected rows and columns such as 16x16, got {value!r}")
    return int(found.group(1)), int(found.group(2))


@click.command()
@click.argument("model", metavar="MODEL")
@click.option(
    "--array", callback=_array, default="16x16", show_default=True, help="Rows x columns of the array."
)
@click.option(
    "--dataflow",
    type=click.Choice(["os", "ws", "is"]),
    default="os",
    show_default=True,
    help="What stays in the array: outputs, weights or inputs.",
)
@click.option("--scratchpad", default=1024, show_default=True, type=click.IntRange(min=1), help="KiB.")
@click.option(
    "--lanes", default=16, show_default=True, type=click.IntRange(min=1), help="Of the vector unit."
)
@click.option("--clock", default=1.0, show_default=True, type=click.FloatRange(0, min_open=True), help="GHz.")
@click.option(
    "--dram", default=25.6, show_default=True, type=click.FloatRange(0, min_open=True), help="GB/s."
)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Samples.")
@click.option("--run", "device", metavar="DEVICE", help="Run the program, too: cpu, vulkan:0, ...")
@click.option("--report", is_flag=True, help="Say where the cycles go, op by op.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--picture", metavar="FILE.svg", help="Draw the timeline and the roofline.")
@click.option("--program", "listing", metavar="FILE", help="Write the program in the assembler's language.")
def emulate(
    model: str,
    array: tuple[int, int],
    dataflow: Any,
    scratchpad: int,
    lanes: int,
    clock: float,
    dram: float,
    batch: int,
    device: str | None,
    report: bool,
    as_json: bool,
    picture: str | None,
    listing: str | None,
) -> None:
    """Time the network MODEL on an accelerator with a systolic array, a vector unit and a scratchpad.

    MODEL is a network such as resnet18 or gpt, or FILE.py:FUNCTION, where the function takes nothing and
    returns a network or another function, and the tensors to call it with.
    """
    accelerator = dl.accelerator_model(
        array, clock=clock * 1e9, dram=dram * 1e9, scratchpad=scratchpad << 10, lanes=lanes, dataflow=dataflow
    )
    network, inputs = _of_file(model) if ":" in model else _known(model, batch)
    console = Console(stderr=True)
    with console.status(f"Compiling {model}"), dl.no_grad():
        program = accelerator.compile(network, *inputs)
    with console.status(f"Timing {model}"):
        found = program.report(*inputs)
    summary: dict[str, Any] = {"model": model, **found.as_dict()}
    if device is not None:
        with console.status(f"Running {model} on {device}"), dl.no_grad():
            summary["difference"] = _difference(program(*inputs, device=device), network(*inputs))
    if picture is not None:
        found.draw(picture, f"{model} on an array of {array[0]} x {array[1]}")
    if listing is not None:
        _write(Path(listing), program.text)
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    _print(model, found, len(program.program.instructions), report=report)
    if device is not None:
        print(f"Run on {device}: {summary['difference']:.1e} of the largest result from immediate mode")


def _known(model: str, batch: int) -> tuple[Any, tuple[Any, ...]]:
    if model not in NETWORKS:
        raise ArgumentError(
            f"[emulate] no model {model!r}{nearest(model, NETWORKS)}; known are {', '.join(NETWORKS)}, and "
            "FILE.py:FUNCTION"
        )
    dl.manual_seed(0)
    network = NETWORKS[model]
    return network.make().eval(), (dl.tensor(network.inputs(batch), device="cpu"),)


def _of_file(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The network and the tensors that ``FILE.py:FUNCTION`` returns.

    Raises:
        FileFormatError: there is no such file or function.
        ArgumentError: it returns something else.
    """
    path, _, function = name.rpartition(":")
    try:
        made = runpy.run_path(path)[function]
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except KeyError:
        raise FileFormatError(f"{path}: there is no function {function!r}") from None
    network, *inputs = made()
    if not callable(network) or not inputs or not all(isinstance(one, dl.Tensor) for one in inputs):
        raise ArgumentError(
            f"[emulate] {name} must return a network and the tensors to call it with, such as (model, x)"
        )
    return network, tuple(inputs)


def _difference(got: Any, expected: Any) -> float:
    """The largest difference, as a share of the largest expected element."""
    one = got if isinstance(got, tuple) else (got,)
    other = expected if isinstance(expected, tuple | list) else (expected,)
    pairs = [(a.numpy().astype(np.float64), b.numpy()) for a, b in zip(one, other, strict=True)]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as error:
        raise FileFormatError(f"{file}: cannot be written: {error.strerror}") from None


def _print(model: str, found: AcceleratorReport, instructions: int, *, report: bool) -> None:
    console = Console()
    wide = Console(width=None if console.is_terminal else WIDE)
    rows, columns = found.hardware.array
    shares, energy, roof = found.utilisation, found.energy, found.roofline
    facts = {
        "cycles": f"{found.cycles:,} ({found.seconds * 1e3:.3g} ms)",
        "instructions": f"{instructions:,}, of which {found.instructions:,} run",
        "multiply-adds": f"{found.multiply_adds:,}: {found.efficiency:.1%} of the array's peak",
        "busy": ", ".join(f"{unit} {share:.1%}" for unit, share in shares.items()),
        "DRAM": f"{found.dram_bytes:,} bytes",
        "energy": f"{sum(energy.values()) * 1e-9:.3g} mJ: "
        + ", ".join(f"{name} {part / max(sum(energy.values()), 1e-30):.0%}" for name, part in energy.items()),
        "roofline": f"{roof['intensity']:.3g} multiply-adds a byte allow {roof['attainable']:.3g} a cycle "
        f"(the limit is the {roof['bound']}); reached {roof['achieved']:.3g}",
    }
    table = Table(
        title=f"{model} on an array of {rows} x {columns} ({found.hardware.dataflow})", show_header=False
    )
    for name, text in facts.items():
        table.add_row(name, text)
    wide.print(table, highlight=False)
    if not report:
        return
    ops = Table(
        "op", "array", "vector", "dma", "bytes", "multiply-adds", title="Busy cycles of each unit by op"
    )
    for one in sorted(found.ops, key=lambda one: -max(one.array, one.vector, one.dma)):
        ops.add_row(one.op, *(f"{number:,}" for number in one[1:]))
    wide.print(ops, highlight=False)
