"""Compares float16 and bfloat16 with float32: ops, a forward pass, and steps of training, on one device.

    python benchmarks/halves.py [--device vulkan:0] [--repeat 9] [--only relu] [--compile]

Each line is one interleaved run (benchmarks/turns.py); times are medians, ratios are over float32's.
"autocast" has parameters of float32 within ``dl.autocast(dtype=dl.bfloat16)``. Bytes are the most that the
device's allocator had in use at a time during a step, over float32's. With ``--compile`` all calls are
compiled.
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
from dl4all.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn

DTYPES = ("float32", "bfloat16", "float16")
Call = Callable[[], Any]

OPS: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "relu, 4M": (((4096, 1024),), lambda x: x.relu()),
    "x + x, 4M": (((4096, 1024),), lambda x: x + x),
    "five elementwise, 4M": (((4096, 1024),) * 2, lambda x, y: (x * y + x).relu().sigmoid() * y),
    "gelu(x + y), 4M": (((4096, 1024),) * 2, lambda x, y: F.gelu(x + y)),
    "sums of rows, 4M": (((4096, 1024),), lambda x: x.sum(1)),
    "softmax, 4M": (((4096, 1024),), lambda x: x.softmax(1)),
    "layer_norm, 4M": (((4096, 1024),), lambda x: F.layer_norm(x, (1024,))),
    "transposed copy, 4M": (((4096, 1024),), lambda x: x.T.contiguous()),
    "matmul 512": (((512, 512),) * 2, lambda a, b: a @ b),
    "matmul 1024": (((1024, 1024),) * 2, lambda a, b: a @ b),
    "conv 3x3, 64 of 56x56": (((8, 64, 56, 56), (64, 64, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1)),
    "one row by 4096x4096": (((1, 4096), (4096, 4096)), lambda x, w: F.linear(x, w)),
}


def op_calls(name: str, device: str, compiled: bool) -> dict[str, Call]:
    shapes, function = OPS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]

    def call(dtype: str) -> Call:
        tensors = [dl.tensor(array, device=device).to(dtype) for array in arrays]
        own = dl.compile(lambda *given: function(*given)) if compiled else function
        return lambda: _waited(own(*tensors), device)

    return {dtype: call(dtype) for dtype in DTYPES}


def _waited(result: Any, device: str) -> Any:
    dl.synchronize(device)
    return result


def forward_calls(device: str, compiled: bool) -> dict[str, Call]:
    """ResNet-18 on four images of 112 x 112."""
    net, x = dl.models.resnet18(num_classes=10).to(device).eval(), dl.randn(4, 3, 112, 112, device=device)

    def call(dtype: str) -> Call:
        own, given = copy.deepcopy(net).to(dtype), x.to(dtype)
        run: Any = dl.compile(own) if compiled else own

        def forward() -> Any:
            with dl.no_grad():
                return _waited(run(given), device)

        return forward

    return {dtype: call(dtype) for dtype in DTYPES}


def step_calls(name: str, device: str, compiled: bool) -> dict[str, Call]:
    """Steps of training: a GPT of four layers, or a ResNet-18 with 16 channels."""
    dl.manual_seed(0)
    if name == "gpt":
        net: Any = dl.models.GPT(512, 64, 4, 4, 192)
        x, y = (dl.randint(512, (8, 64), device=device) for _ in range(2))
    else:
        net = dl.models.resnet18(num_classes=10, base_channels=16)
        x, y = dl.randn(32, 3, 64, 64, device=device), dl.randint(10, (32,), device=device)
    net = net.to(device)

    def call(dtype: str) -> Call:
        mixed = dtype == "autocast"
        own = copy.deepcopy(net).to("float32" if mixed else dtype)
        given = x.to(dtype) if x.dtype == dl.float32 and not mixed else x
        optimizer = dl.optim.SGD(own.parameters(), lr=1e-3, momentum=0.9)

        def step() -> Any:
            optimizer.zero_grad()
            with dl.autocast(device.partition(":")[0], dtype="bfloat16", enabled=mixed):
                scores = own(given)
                loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
            loss.backward()
            optimizer.step()

        run = dl.compile(step) if compiled else step
        return lambda: _waited(run(), device)

    return {dtype: call(dtype) for dtype in ("float32", "autocast")}  # parameters of 16 bits lose updates


def peak(call: Call, device: str) -> int:
    """The most bytes that one more call had in use beside what is there anyway."""
    call()
    before = dl.memory.stats(device).allocated
    dl.memory.reset_peak(device)
    call()
    return int(dl.memory.stats(device).peak - before)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", default="vulkan:0", show_default=True)
@click.option("--repeat", default=9, show_default=True)
@click.option("--only", default="", help="Lines whose names have this text.")
@click.option("--compile", is_flag=True, help="Compile ops, forward passes and steps.")
def main(device: str, repeat: int, only: str, compile: bool) -> None:
    """float16 and bfloat16 beside float32."""
    table = Table("", "float32, ms", "bfloat16", "float16", "autocast", "bytes of autocast")
    makers: dict[str, Callable[[], dict[str, Call]]] = {
        **{name: lambda name=name: op_calls(name, device, compile) for name in OPS},  # type: ignore[misc]
        "ResNet-18, forward": lambda: forward_calls(device, compile),
        "ResNet-18, step": lambda: step_calls("resnet", device, compile),
        "GPT, step": lambda: step_calls("gpt", device, compile),
    }
    for name, make in makers.items():
        if only not in name:
            continue
        calls = make()
        times = in_turn(calls, repeat, warm_up=3, least=20.0)
        median = {dtype: statistics.median(t.clock) for dtype, t in times.items()}
        others = (*DTYPES[1:], "autocast")
        ratios = [f"{median[d] / median['float32']:.2f}" if d in median else "" for d in others]
        share = ""
        if "autocast" in calls and not compile:  # whose memory is there before a call
            most = {dtype: peak(call, device) for dtype, call in calls.items()}
            share = f"{most['autocast'] / most['float32']:.2f}"
        table.add_row(name, f"{median['float32']:.2f}", *ratios, share)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
