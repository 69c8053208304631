"""Compares networks with weights and inputs in few bits with float32, on one device.

    python benchmarks/quantization.py [--device vulkan:0] [--repeat 9] [--only linear]

Each line is one interleaved run (benchmarks/turns.py); times are medians, ratios are over float32's. Errors
are the largest differences from float32's results, relative to the largest of these; bytes are those of the
weights. Networks have random weights, and are compiled.
"""

from __future__ import annotations

import copy
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.ops.linalg.integer_product import integer_product
from dl4all.quantization import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    convert,
    prepare,
    quantize_,
)
from dl4all.quantization.report import state_bytes

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn

Networks = dict[str, Any]
CONFIGS = {
    "int8": Int8WeightOnlyConfig(),
    "int4": Int4WeightOnlyConfig(),
    "dynamic": Int8DynamicActivationInt8WeightConfig(),
}
KINDS = (*CONFIGS, "static")


def variants(net: Any, *inputs: Any) -> Networks:
    """The network in floats and in fewer bits."""
    networks = {"float32": net}
    for name, config in CONFIGS.items():
        networks[name] = copy.deepcopy(net)
        quantize_(networks[name], config)
    observed = prepare(net)
    with dl.no_grad():
        observed(*inputs)
    networks["static"] = convert(observed)
    return networks


def linear(rows: int, size: int) -> Callable[[str], tuple[Networks, Any]]:
    def make(device: str) -> tuple[Networks, Any]:
        x = dl.randn(rows, size, device=device)
        return variants(dl.nn.Linear(size, size, bias=False).to(device).eval(), x), x

    return make


def resnet(device: str) -> tuple[Networks, Any]:
    x = dl.randn(4, 3, 112, 112, device=device)
    networks = variants(dl.models.resnet18(num_classes=10).to(device).eval(), x)
    return {name: networks[name] for name in ("float32", "static")}, x


def token(device: str) -> tuple[Networks, Any]:
    """The last token of a text: one row through each layer of a GPT."""
    layer = dl.nn.TransformerEncoderLayer(1024, 8, 4096, 0.0, batch_first=True)
    net = dl.nn.Sequential(*[copy.deepcopy(layer) for _ in range(4)], dl.nn.Linear(1024, 16000))
    x = dl.randn(1, 1, 1024, device=device)
    return variants(net.to(device).eval(), x), x


NETWORKS = {
    "linear, 1 row by 4096x4096": linear(1, 4096),
    "linear, 4 rows by 4096x4096": linear(4, 4096),
    "linear, 16 rows by 4096x4096": linear(16, 4096),
    "linear, 512 rows by 1024x1024": linear(512, 1024),
    "transformer, 66M weights, 1 token": token,
    "ResNet-18, 4 images of 112x112": resnet,
}


def products(size: int, device: str) -> dict[str, Callable[[], Any]]:
    """Square matrices of integers."""
    rng = np.random.default_rng(0)
    a, b = (dl.tensor(rng.integers(-128, 128, (size, size)), dtype="int8", device=device) for _ in range(2))
    x, y = a.float(), b.float().T
    return {"float32": lambda: waited(x @ y, device), "int8": lambda: waited(integer_product(a, b), device)}


def waited(result: Any, device: str) -> Any:
    dl.synchronize(device)
    return result


def call(network: Any, x: Any, device: str) -> Callable[[], Any]:
    compiled: Any = dl.compile(network)

    def forward() -> Any:
        with dl.no_grad():
            return waited(compiled(x), device)

    return forward


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--repeat", default=9, show_default=True)
@click.option("--only", default="", help="Lines whose names have this text.")
def main(device: str, repeat: int, only: str) -> None:
    """Few bits beside float32."""
    table = Table("", "float32, ms", *KINDS)

    def row(name: str, calls: dict[str, Callable[[], Any]], notes: dict[str, str]) -> None:
        times = in_turn(calls, repeat, warm_up=3, least=20.0)
        median = {kind: statistics.median(time.clock) for kind, time in times.items()}
        cells = [
            f"{median[kind] / median['float32']:.2f}{notes.get(kind, '')}" if kind in median else ""
            for kind in KINDS
        ]
        table.add_row(name, f"{median['float32']:.3f}", *cells)

    for size in (512, 1024):
        if only in f"product, {size}":
            row(f"product, {size}", products(size, device), {})
    for name, make in NETWORKS.items():
        if only not in name:
            continue
        dl.manual_seed(0)
        networks, x = make(device)
        calls = {kind: call(network, x, device) for kind, network in networks.items()}
        expected, whole = calls["float32"]().cpu().numpy(), state_bytes(networks["float32"])
        notes = {}
        for kind, network in networks.items():
            error = np.abs(calls[kind]().cpu().numpy() - expected).max() / np.abs(expected).max()
            notes[kind] = f", {state_bytes(network) / whole:.2f} B, {error:.3f}"
        row(name, calls, notes)
    Console(width=130).print(table)
    print("time over float32's, bytes over float32's, largest error")


if __name__ == "__main__":
    main()
