"""Compares ONNX files on dl4all's devices with ONNX Runtime on the CPU, and says how far results differ.

    python benchmarks/onnx_models.py [FILE.onnx ...] [--device cpu] [--size batch=8] [--repeat 9]

Without files, networks in plain PyTorch are exported first: ResNet-18 and ResNet-50 at 224x224, and a tiny
BERT, which shows what each call costs. Each line is one interleaved run (benchmarks/turns.py); times are
medians of compiled calls with inputs on the device; ratios are over ONNX Runtime's, with as many threads.
Inputs are random. Loading is in a process of its own, after another model; its peak memory is over the file's
size.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.cli.model_inputs import random_input, sizes_of
from dl4all.onnx.graph import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn
from tests.support.exported_networks import exported
from tests.support.torch_models import ResNet, lively


def networks() -> dict[str, bytes]:
    """The files of networks that people run."""
    image = torch.randn(1, 3, 224, 224)
    made = {
        "resnet18": ResNet([2, 2, 2, 2], False, 1000, 3, 64),
        "resnet50": ResNet([3, 4, 6, 3], True, 1000, 3, 64),
    }
    files = {}
    for name, network in made.items():
        file: Any = io.BytesIO()
        axes = {"x": {0: "batch"}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                lively(network, image).eval(), (image,), file, input_names=["x"], dynamic_axes=axes,
                opset_version=17, dynamo=False,
            )  # fmt: skip
        files[name] = file.getvalue()
    return {**files, "bert": exported("bert")[0]}


def reference_session(content: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def inputs_of(module: Any, sizes: dict[str, int]) -> dict[str, NDArray]:
    return {info.name: random_input(info, sizes) for info in module.graph.arguments}


LOAD = """
import re, sys, time
import dl4all as dl
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
tiny, path, device = sys.argv[1:]
dl.onnx.load(tiny, device=device)
before, begun = peak(), time.perf_counter()
dl.onnx.load(path, device=device)
print(time.perf_counter() - begun, peak() - before)
"""


def loading(tiny: Path, path: Path, device: str) -> tuple[float, float]:
    """The seconds that loading takes, and the memory that it takes over the file's size."""
    command = [sys.executable, "-c", LOAD, str(tiny), str(path), device]
    seconds, peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(peak) / path.stat().st_size


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("--device", "names", multiple=True, default=["cpu"], show_default=True)
@click.option("--size", multiple=True, metavar="NAME=N", help="Sizes that files leave open; 1 unless given.")
@click.option("--repeat", default=9, show_default=True, help="Rounds.")
def main(files: tuple[str, ...], names: tuple[str, ...], size: tuple[str, ...], repeat: int) -> None:
    """Compare ONNX FILES with ONNX Runtime."""
    contents = {Path(file).stem: Path(file).read_bytes() for file in files} or networks()
    folder = Path(tempfile.mkdtemp())
    tiny = folder / "tiny.onnx"
    tiny.write_bytes(exported("bert")[0])
    table = Table("model", "device", "MB", "load s", "peak / file", "ms", "ONNX Runtime ms", "ratio", "error")
    for name, content in contents.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(content)
        session = reference_session(content)
        for device in names:
            loaded, grown = loading(tiny, path, device)
            module = dl.onnx.load(path, device=device)
            arrays = inputs_of(module, sizes_of(size))
            tensors = {n: dl.tensor(array, device=device) for n, array in arrays.items()}

            def own(module: Any = module, tensors: Any = tensors) -> Any:
                result = module(**tensors)
                module.device.synchronize()
                return result

            def other(session: Any = session, arrays: Any = arrays) -> Any:
                return session.run(None, arrays)

            with dl.inference_mode():
                times = in_turn({"own": own, "other": other}, repeat, warm_up=4, least=20)
                result, wanted = own(), other()[0].astype(np.float64)
            first = result[0] if isinstance(result, tuple) else result
            error = float(np.abs(first.numpy() - wanted).max() / np.abs(wanted).max())
            mine, theirs = (statistics.median(times[n].clock) for n in ("own", "other"))
            table.add_row(
                name, device, f"{len(content) / 1e6:.1f}", f"{loaded:.2f}", f"{grown:.2f}", f"{mine:.2f}",
                f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{error:.0e}",
            )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
