"""``dl4all inspect`` and ``convert``: what is in an ONNX model, and weights in another format."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.model_inputs import open_sizes, random_input, sizes_of
from dl4all.cli.train import write_weights
from dl4all.errors import Dl4allError, FileFormatError
from dl4all.onnx.graph import OnnxModel, ValueInfo, every_node
from dl4all.onnx.model_file import read_model
from dl4all.onnx.support import missing_operators


@click.command("inspect")
@click.argument("model", metavar="MODEL.onnx")
@open_sizes
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect_model(model: str, size: tuple[str, ...], as_json: bool) -> None:
    """Print inputs, outputs, operators, parameters, work and memory of MODEL.onnx, and what is not supported.

    Nothing is computed: the work is that of a call on a device that only counts.

    Example: dl4all inspect resnet50.onnx --size batch=8
    """
    found = read_model(model)
    missing = missing_operators(found)
    operators = Counter(_name(node.domain, node.op_type) for node in every_node(found.graph))
    report = {
        "producer": found.producer,
        "opsets": {domain or "ai.onnx": version for domain, version in found.opsets.items()},
        "inputs": [_shown(info) for info in found.graph.arguments],
        "outputs": [_shown(info) for info in found.graph.outputs],
        "operators": dict(operators.most_common()),
        "parameters": sum(array.size for array in found.graph.initializers.values()),
        "bytes": sum(array.nbytes for array in found.graph.initializers.values()),
        "unsupported": dict(missing.most_common()),
        **({} if missing else _work(found, sizes_of(size))),
    }
    if as_json:
        print(json.dumps(report))
    else:
        _print(report)


def _name(domain: str, op_type: str) -> str:
    return f"{domain}::{op_type}" if domain else op_type


def _shown(info: ValueInfo) -> dict[str, Any]:
    shape = None if info.shape is None else list(info.shape)
    return {"name": info.name, "kind": info.kind, "dtype": str(info.dtype), "shape": shape}


def _work(model: OnnxModel, sizes: dict[str, int]) -> dict[str, Any]:
    """The floating point operations and the memory of one call."""
    device = dl.device("null:0")
    try:
        module = dl.onnx.OnnxModule(model, device)
        inputs = [random_input(info, sizes) for info in module.graph.arguments]
        dl.memory.reset_peak(device)
        before = dl.memory.stats(device).allocated
        with dl.no_grad(), dl.profile() as profiled:
            module(*inputs)
        peak = dl.memory.stats(device).peak - before
    except Dl4allError as error:  # as the sizes that were given do not fit, say
        return {"work": f"is not known: {error}"}
    if module.waits:
        return {"work": f"is not known without computing: it depends on elements ({', '.join(module.waits)})"}
    return {"flops": sum(event.flops for event in profiled.events if event.kind == "op"), "peak_bytes": peak}


def _print(report: dict[str, Any]) -> None:
    console = Console()
    say = partial(console.print, highlight=False)
    opsets = ", ".join(f"{domain} {version}" for domain, version in report["opsets"].items())
    say(f"{report['producer'] or 'unknown producer'}; {opsets}")
    table = Table("", "name", "dtype", "shape")
    for way in ("inputs", "outputs"):
        for info in report[way]:
            shape = "?" if info["shape"] is None else ", ".join(str(n or "?") for n in info["shape"])
            kind = info["dtype"] if info["kind"] == "tensor" else f"{info['kind']} of {info['dtype']}"
            table.add_row(way.removesuffix("s"), info["name"], kind, shape)
    console.print(table)
    say(f"{report['parameters']:,} numbers in {report['bytes'] / 1e6:,.1f} MB of initializers")
    if "flops" in report:
        flops, peak = report["flops"] / 1e9, report["peak_bytes"] / 1e6
        say(f"{flops:,.3f} GFLOP in a call, {peak:,.1f} MB of results at a time")
    elif "work" in report:
        say(f"the work of a call {report['work']}")
    say(f"operators: {_counted(report['operators'])}")
    missing = report["unsupported"]
    say(f"not supported: {_counted(missing)}" if missing else "all of them are supported")


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET.safetensors")
def convert(source: str, target: str) -> None:
    """Write the weights of SOURCE (.pth, .pt, .safetensors, or the initializers of an .onnx) to TARGET.

    Example: dl4all convert resnet18.pth resnet18.safetensors
    """
    if not target.endswith(".safetensors"):
        raise FileFormatError(f"{target}: weights are written as .safetensors files")
    if source.endswith(".onnx"):
        arrays = dict(read_model(source).graph.initializers)
    else:
        arrays = dl.io.load_weights(source)
    write_weights(target, arrays)
    size = sum(array.nbytes for array in arrays.values())
    print(f"{target}: {len(arrays)} tensors, {size / 1e6:.1f} MB")
