"""Our kernels against generated ones: dl.compile, IREE, ONNX Runtime and torch.compile on the same networks.

    python benchmarks/compilers.py [--device cpu] [--device vulkan:0] [--repeat 15] [--only resnet]

Each case is one interleaved run (benchmarks/turns.py), from tensors of a library to such tensors, waited for:
medians in milliseconds, and the seconds until the first result, compiling included. ONNX Runtime and
torch.compile run on the processor only, where they are installed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dl4all as dl
from dl4all.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.turns import in_turn

Call = Callable[[], object]

SECONDS = 10
"""Of the runs of the slowest compiler of a case, which has three at least."""


class _Op(dl.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def cases() -> dict[str, tuple[dl.nn.Module, list[Any]]]:
    """Modules with their arguments, on the CPU."""
    images, tokens = dl.randn(1, 3, 64, 64, device="cpu"), dl.randn(8, 64, 128, device="cpu")
    a, b = (dl.randn(512, 512, device="cpu") for _ in range(2))
    x, w = dl.randn(1, 64, 28, 28, device="cpu"), dl.randn(64, 64, 3, 3, device="cpu")
    query = dl.randn(1, 8, 256, 64, device="cpu")
    rows = dl.randn(1024, 1024, device="cpu")
    made: dict[str, tuple[dl.nn.Module, list[Any]]] = {
        "product 512": (_Op(dl.matmul), [a, b]),
        "convolution 64 28x28": (_Op(lambda x, w: F.conv2d(x, w, padding=1)), [x, w]),
        "softmax 1024x1024": (_Op(lambda x: dl.softmax(x, -1)), [rows]),
        "layer norm 1024x1024": (_Op(lambda x: F.layer_norm(x, (1024,))), [rows]),
        "attention 8x256x64": (_Op(lambda q: F.scaled_dot_product_attention(q, q, q)), [query]),
        "ResNet-18 64x64": (dl.models.resnet18(), [images]),
        "encoder block 8x64x128": (dl.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), [tokens]),
        "MLP 784-512-512-10, 64 rows": (
            dl.models.MLP(784, hidden=[512, 512], num_classes=10), [dl.randn(64, 784, device="cpu")],
        ),
    }  # fmt: skip
    return {name: (module.to("cpu").eval(), given) for name, (module, given) in made.items()}


def ours(module: dl.nn.Module, given: list[Any], device: str, backend: str | None) -> Call:
    """The compiled module on a device, which is waited for."""
    module = module.to(device)
    run: Any = dl.compile(module, backend=backend)
    moved = [tensor.to(device) for tensor in given]

    def call() -> None:
        with dl.no_grad():
            run(*moved)
        moved[0].device.synchronize()

    return call


def of_onnxruntime(module: dl.nn.Module, given: list[Any]) -> Call:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.onnx"
        names = dl.onnx.export(module, tuple(given), path).input_names
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {name: tensor.numpy() for name, tensor in zip(names, given, strict=True)}
    return lambda: session.run(None, feeds)


def of_torch(name: str, given: list[Any]) -> Call:
    """PyTorch's own code of an op or network."""
    import torch

    from benchmarks.torch_resnet import resnet18

    functions: dict[str, Any] = {
        "product 512": torch.matmul,
        "convolution 64 28x28": lambda x, w: torch.nn.functional.conv2d(x, w, padding=1),
        "softmax 1024x1024": lambda x: torch.softmax(x, -1),
        "layer norm 1024x1024": lambda x: torch.nn.functional.layer_norm(x, (1024,)),
        "attention 8x256x64": lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q),
    }
    networks: dict[str, Callable[[], torch.nn.Module]] = {
        "ResNet-18 64x64": resnet18,
        "encoder block 8x64x128": lambda: torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True),
        "MLP 784-512-512-10, 64 rows": lambda: torch.nn.Sequential(
            torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
            torch.nn.Linear(512, 10),
        ),
    }  # fmt: skip
    run: Any = torch.compile(functions[name] if name in functions else networks[name]().eval())
    moved = [torch.from_numpy(tensor.numpy()) for tensor in given]

    def call() -> None:
        with torch.no_grad():
            run(*moved)

    return call


@click.command()
@click.option("--device", "devices", multiple=True, default=("cpu", "vulkan:0"), show_default=True)
@click.option("--repeat", default=15, show_default=True)
@click.option("--only", default="", help="Cases whose names have this text.")
def main(devices: tuple[str, ...], repeat: int, only: str) -> None:
    """Our kernels against generated ones."""
    table = Table("device", "case", "compiler", "first result, s", "ms", "over dl.compile")
    for device in devices:
        for name, (module, given) in cases().items():
            if only not in name:
                continue
            makers: dict[str, Callable[[], Call]] = {
                "dl.compile": partial(ours, module, given, device, None),
                "IREE": partial(ours, module, given, device, "iree"),
            }
            if device == "cpu":
                makers["ONNX Runtime"] = partial(of_onnxruntime, module, given)
                makers["torch.compile"] = partial(of_torch, name, given)
            calls, first = dict[str, Call](), dict[str, float]()
            for who, make in makers.items():
                start = time.perf_counter()
                try:
                    call = make()
                    call()
                except (ImportError, dl.Dl4allError) as error:
                    print(f"{device} {name}: {who}: {error}")
                    continue
                calls[who], first[who] = call, time.perf_counter() - start
            slowest = max(_warmed(call) for call in calls.values())
            times = in_turn(calls, max(3, min(repeat, int(SECONDS / slowest))), warm_up=0, least=20)
            for who, measured in times.items():
                ratio = median(measured.clock) / median(times["dl.compile"].clock)
                row = f"{first[who]:.1f}", f"{median(measured.clock):.2f}", f"{ratio:.2f}"
                print(device, name, who, *row, sep=", ", flush=True)
                table.add_row(device, name, who, *row)
    Console(width=120).print(table)


def _warmed(call: Call) -> float:
    """Seconds of a call, after others if it is quick: they are traced, and fill pools."""
    for _ in range(4):
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        if seconds > 1:
            break
    return seconds


if __name__ == "__main__":
    main()
