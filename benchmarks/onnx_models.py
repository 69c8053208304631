"""Compares ONNX files on dl4all's devices with ONNX Runtime on the CPU, and says how far results differ.

    python benchmarks/onnx_models.py [FILE.onnx ...] [--only resnet18 ...] [--device cpu] [--threads 1]
                                     [--size batch=8] [--repeat 9]

Without files, networks in plain PyTorch are exported first: convolutional ones for images of 224 x 224 and of
128 x 128, encoders and an MLP-Mixer, and small ones, which show what each call costs. Each line is one
interleaved run (benchmarks/turns.py); times are medians of compiled calls with inputs on the device; ratios
are over ONNX Runtime's, with as many threads; the last line has their geometric mean. Inputs are random.
Loading is in a process of its own, after another model; its peak memory is over the file's size.
"""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import dl4all as dl
from dl4all.cli.model_inputs import random_input, sizes_of
from dl4all.onnx.graph import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import threads
from benchmarks.networks import CASES
from benchmarks.turns import in_turn
from tests.support.exported_networks import exported
from tests.support.torch_models import MobileNetV2, ResNet, lively


class Mixer(nn.Module):
    """An MLP-Mixer (Tolstikhin and others, 2021, https://arxiv.org/abs/2105.01601)."""

    def __init__(self, patches: int = 49, width: int = 128, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * depth)])
        self.mixers = nn.ModuleList([perceptron(n, n) for _ in range(depth) for n in (patches, width)])

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for number, (norm, mixer) in enumerate(zip(self.norms, self.mixers, strict=True)):
            given = norm(x)
            x = x + (mixer(given) if number % 2 else mixer(given.transpose(1, 2)).transpose(1, 2))
        return x.mean(1)


class Encoder(nn.Module):
    """Encoder layers as language models have them, norms first."""

    def __init__(self, width: int = 256, heads: int = 4, depth: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * depth)])
        self.projections = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(depth)])
        self.outputs = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.perceptrons = nn.ModuleList([perceptron(width, 4 * width) for _ in range(depth)])

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        for i, (project, output, mix) in enumerate(
            zip(self.projections, self.outputs, self.perceptrons, strict=True)
        ):
            heads = project(self.norms[2 * i](x)).view(batch, length, 3, self.heads, -1)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            shares = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
            x = x + output((shares @ v).transpose(1, 2).reshape(batch, length, width))
            x = x + mix(self.norms[2 * i + 1](x))
        return x


def perceptron(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


MOBILE = [32, 16, 24, 32, 64, 96, 160, 320, 1280]
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet18": (lambda: ResNet([2, 2, 2, 2], False, 1000, 3, 64), (1, 3, 224, 224)),
    "resnet50": (lambda: ResNet([3, 4, 6, 3], True, 1000, 3, 64), (1, 3, 224, 224)),
    "mobilenet_v2": (lambda: MobileNetV2(MOBILE, 1000, 3), (1, 3, 224, 224)),
    "unet": (lambda: CASES["unet"].network(torch), (1, 3, 128, 128)),
    "encoder": (Encoder, (1, 128, 256)),
    "encoder of 8": (Encoder, (8, 128, 256)),
    "mixer": (Mixer, (1, 3, 56, 56)),
    "mlp of 32": (lambda: CASES["mlp"].network(torch), (32, 784)),
    "mlp": (lambda: CASES["mlp"].network(torch), (1, 784)),
    "softmax": (lambda: nn.Softmax(-1), (512, 1000)),
    "gelu": (nn.GELU, (512, 3072)),
    "depthwise": (lambda: nn.Conv2d(192, 192, 3, padding=1, groups=192), (1, 192, 28, 28)),
}


def small_bert() -> bytes:
    """Attention over 16 features, which shows what calls cost."""
    content: bytes = exported("bert")[0]
    return content


class LastStates(nn.Module):
    """The states behind the last layer of a network of transformers."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Any, mask: Any) -> Any:
        return self.network(input_ids=ids, attention_mask=mask).last_hidden_state


def bert_tiny() -> bytes:
    """The smallest of BERT's published sizes (Turc and others, 2019, https://arxiv.org/abs/1908.08962)."""
    import transformers

    torch.manual_seed(0)
    sizes: Any = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
    }
    made: Any = LastStates(transformers.BertModel(transformers.BertConfig(**sizes)))
    ids = torch.randint(0, 30000, (1, WORDS))
    names = ["input_ids", "attention_mask"]
    file: Any = io.BytesIO()
    axes = {name: {0: "batch", 1: "length"} for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            made.eval(), (ids, torch.ones_like(ids)), file, input_names=names, output_names=["states"],
            dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
    written: bytes = file.getvalue()
    return written


WORDS = 128  # of bert_tiny's text
FILES: dict[str, Callable[[], bytes]] = {"bert": small_bert, "bert_tiny": bert_tiny}


def network(name: str) -> bytes:
    """The file of a network that people run."""
    if name in FILES:
        return FILES[name]()
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    x, made = torch.randn(shape), make()
    file: Any = io.BytesIO()
    if any(isinstance(module, nn.BatchNorm2d) for module in made.modules()):
        made = lively(made, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            made.eval(), (x,), file, input_names=["x"], dynamic_axes={"x": {0: "batch"}}, opset_version=17,
            dynamo=False,
        )  # fmt: skip
    written: bytes = file.getvalue()
    return written


def reference_session(content: bytes, count: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = count
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
@click.option("--only", multiple=True, type=click.Choice([*NETWORKS, *FILES]), help="All unless given.")
@click.option("--threads", "count", type=click.IntRange(min=1), help="Of both libraries.")
@click.option("--device", "names", multiple=True, default=["cpu"], show_default=True)
@click.option("--size", multiple=True, metavar="NAME=N", help="Sizes that files leave open; 1 unless given.")
@click.option("--repeat", default=9, show_default=True, help="Rounds.")
def main(
    files: tuple[str, ...],
    only: tuple[str, ...],
    count: int | None,
    names: tuple[str, ...],
    size: tuple[str, ...],
    repeat: int,
) -> None:
    """Compare ONNX FILES with ONNX Runtime."""
    count = threads.hold(count)
    contents = {Path(file).stem: Path(file).read_bytes() for file in files}
    contents = contents or {name: network(name) for name in only or (*NETWORKS, *FILES)}
    opened = {name: {"batch": shape[0]} for name, (_, shape) in NETWORKS.items()}
    opened = {} if files else {**opened, "bert_tiny": {"length": WORDS}}
    ratios: dict[str, list[float]] = {device: [] for device in names}
    folder = Path(tempfile.mkdtemp())
    tiny = folder / "tiny.onnx"
    tiny.write_bytes(exported("bert")[0])
    table = Table("model", "device", "MB", "load s", "peak / file", "ms", "ONNX Runtime ms", "ratio", "error")
    for name, content in contents.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(content)
        session = reference_session(content, count)
        for device in names:
            loaded, grown = loading(tiny, path, device)
            module = dl.onnx.load(path, device=device)
            arrays = inputs_of(module, opened.get(name, {}) | sizes_of(size))
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
            ratios[device].append(mine / theirs)
            table.add_row(
                name, device, f"{len(content) / 1e6:.1f}", f"{loaded:.2f}", f"{grown:.2f}", f"{mine:.2f}",
                f"{theirs:.2f}", f"{mine / theirs:.2f}", f"{error:.0e}",
            )  # fmt: skip
    table.add_section()
    for device, found in ratios.items():
        table.add_row("geometric mean", device, *[""] * 5, f"{statistics.geometric_mean(found):.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
